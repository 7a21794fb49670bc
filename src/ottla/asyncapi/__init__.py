"""AsyncAPI 3 documents of apps.

    document.py     `document_of(app)`: the document, from the app's declarations. Pure.
    channels.py     channels and operations; messages.py the messages; schemas.py JSON Schema as AsyncAPI takes it
    headers.py      the headers that Ottla writes; servers.py addresses and security, without secrets
    differences.py  `differences(old, new)` of two documents; json_, protobuf_compatibility.py the rules of formats
    page.py         `page_of(document)`: one static page of HTML

Nothing here reaches a cluster or a registry, and the same app gives the same document.
"""

from ottla.asyncapi.differences import Difference as Difference
from ottla.asyncapi.differences import differences as differences
from ottla.asyncapi.document import document_of as document_of
from ottla.asyncapi.page import page_of as page_of
from ottla.asyncapi.page import page_of_problem as page_of_problem
