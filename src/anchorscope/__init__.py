"""anchorscope: by which route do a language model's hidden states know that its answer is true?

The public names are those below; everything else is private and may change.
"""

__version__ = "0.1.0.dev0"

from anchorscope.errors import AnchorscopeError
from anchorscope.study import DatasetSpec, ModelSpec, PromptSpec, Study
from anchorscope.studyfile import load_study

__all__ = ["AnchorscopeError", "DatasetSpec", "ModelSpec", "PromptSpec", "Study", "__version__", "load_study"]
