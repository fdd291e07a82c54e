"""What people see: charts drawn from the tables alone, their captions and numbers, and single samples.

charts.py declares each chart, draw/ draws it, text/ describes it in words, page/ makes the one-file report, and
figures.py writes figures with their captions and numbers.
"""
