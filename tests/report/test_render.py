"""What the page is told of detectors."""

from __future__ import annotations

from anchorscope.detectors.catalogue import catalogue
from anchorscope.report.page.render import Detection, _detectors


def test_a_title_can_stand_without_the_one_above_it():
    told = _detectors(Detection({}, {}))
    assert told["titles"]["single_layer_confidence"] == "single-layer probe and log-probabilities"
    assert len(set(told["titles"].values())) == len(catalogue())
    assert all(title.strip("– ") == title for title in told["titles"].values())


def test_every_detector_has_a_look():
    told = _detectors(Detection({}, {}))
    assert all(told["sides"][name] in told["looks"] for name in catalogue())
