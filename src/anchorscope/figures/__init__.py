"""The charts, drawn from the `pathways` table alone: ΔP by layer, its controls, its strata, and AUROC.

charts.py says what each chart shows, palette.py in which colours, drawing.py puts it on paper, files.py writes it
with the numbers beside it, and caption.py says it in words.
"""

from anchorscope.figures.caption import caption
from anchorscope.figures.charts import CHARTS
from anchorscope.figures.files import draw
from anchorscope.figures.maps import draw_maps

__all__ = ["CHARTS", "caption", "draw", "draw_maps"]
