"""The documentation as a site: pages written by hand, pages made from the code, and the checks of the result.

    PYTHONPATH=tools python -m docs_site build        # build/site
    PYTHONPATH=tools python -m docs_site serve        # http://127.0.0.1:8000, built again when a page changes

`assemble` copies `docs/` to `build/docs` and adds what is made from the code: `api_pages` from docstrings, `cli_pages`
from the commands, `settings_page` from the tables of settings, `error_pages` completes those of errors. `navigation`
adds pages that `mkdocs.yml` does not list to the section of their folder. `links` checks the built site.
"""
