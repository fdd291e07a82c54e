"""What people see: charts drawn from the tables alone, their captions and numbers, and one sample in colour.

charts.py says what each chart shows, palette.py in which colours, drawing.py puts it on paper, figures.py writes it
with the numbers beside it, and caption.py says it in words.
"""
