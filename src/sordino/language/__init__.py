"""The same stages on language models; needs the extra ``language`` and is never imported for you.

Example:
    >>> from sordino.language import SentenceEmbeddings
"""

from .embeddings import SentenceEmbeddings

__all__ = ["SentenceEmbeddings"]
