"""From read-outs to pathways: who is Q- and who A-Anchored, how far each condition moves them, and how sure that is."""
