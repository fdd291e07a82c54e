"""From read-outs to pathways: Q- and A-Anchored answers, how far each condition moves them, and the intervals."""
