"""Sphinx's configuration. docs/build.sh runs it in the folder that docs/stage.py makes."""

import os
import re
from pathlib import Path

from docutils import nodes

header = Path(os.environ["ZEROPP_ROOT"], "include/zeropp/version.hpp").read_text()
release = ".".join(re.findall(r"#define ZEROPP_VERSION_\w+ (\d+)", header))
project = "zeropp"
copyright = "the authors of zeropp, Apache-2.0"

extensions = ["myst_parser", "sphinx_design", "sphinx_copybutton"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 6
# The reference of a name is its section, whichever level results and files of the repository begin at.
suppress_warnings = ["myst.header", "misc.highlighting_failure", "toc.empty_glob"]
highlight_language = "text"
nitpicky = True

html_theme = "furo"
html_title = f"zeropp {release}"
html_static_path = ["style"]
html_css_files = ["zeropp.css"]
html_copy_source = False
html_show_sphinx = False
pygments_style = "xcode"
pygments_dark_style = "nord-darker"
html_theme_options = {
    "top_of_page_buttons": [],
    "light_css_variables": {
        "color-brand-primary": "#1f5f74",
        "color-brand-content": "#1f5f74",
        "color-brand-visited": "#1f5f74",
        "color-link--visited": "#1f5f74",
    },
    "dark_css_variables": {
        "color-brand-primary": "#7fc3d6",
        "color-brand-content": "#7fc3d6",
        "color-brand-visited": "#7fc3d6",
        "color-link--visited": "#7fc3d6",
    },
}


def link_names(app, doctree, page):
    """Makes a link of code that is a public name and nothing else, on every page."""
    names = app.env.domains["std"].objects
    for code in list(doctree.findall(nodes.literal)):
        name = code.astext().removeprefix("zeropp::").removesuffix("(...)").removesuffix("()")
        if ("public-name", name) not in names or isinstance(code.parent, nodes.reference):
            continue
        where, anchor = names["public-name", name]
        address = (app.builder.get_relative_uri(page, where) if where != page else "") + "#" + anchor
        code.replace_self(nodes.reference("", "", code.deepcopy(), internal=True, refuri=address))


def setup(app):
    # {public-name} marks where a name is explained: for the search, which lists names first, and for links.
    app.add_crossref_type("public-name", "public-name", objname="zeropp")
    app.connect("doctree-resolved", link_names)
