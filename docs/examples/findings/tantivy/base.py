"""tantivy: a document, then `commit`."""

import os
import sys
from pathlib import Path

import tantivy

sys.path.append(str(Path(__file__).resolve().parents[1]))
import shared


def run(folder, records):
    schema = tantivy.SchemaBuilder()
    schema.add_integer_field("number", stored=True)
    schema.add_text_field("value", stored=True)
    os.mkdir(f"{folder}/index")
    writer = tantivy.Index(schema.build(), path=f"{folder}/index").writer(15_000_000, 1)
    for number in range(1, records + 1):
        writer.add_document(tantivy.Document(number=number, value=shared.value(number)))
        writer.commit()
        shared.report(number)


def read(folder):
    searcher = tantivy.Index.open(f"{folder}/index").searcher()
    documents = [searcher.doc(address) for _, address in searcher.search(tantivy.Query.all_query(), 1000).hits]
    return {document["number"][0]: document["value"][0] for document in documents}


shared.main(run, read)
