"""What people see: charts drawn from the tables alone, their captions and numbers, and one sample in colour.

charts.py says what each chart shows, draw/ puts it on paper, text/ says it in words, page/ makes the one-file report,
and figures.py writes figures with their captions and numbers.
"""
