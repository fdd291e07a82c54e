"""The report: one HTML file with the charts, the claims and the samples behind them."""
