"""Sphinx's settings of the site. build.py gives the folders."""
import everstep

project = "everstep"
author = copyright = "The everstep authors"
version = release = everstep.__version__
extensions = ["myst_parser"]
myst_heading_anchors = 6
myst_enable_extensions = ["attrs_block", "colon_fence"]
smartquotes = False  # code in sentences is copied as it stands
html_theme = "furo"
html_title = "everstep"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_show_search_summary = False  # it fetches pages, which a browser refuses where there is no server
html_use_index = False
html_show_sphinx = False
html_last_updated_fmt = None
pygments_style, pygments_dark_style = "a11y-light", "a11y-dark"
html_theme_options = {"top_of_page_buttons": [], "navigation_with_keys": False}
nitpicky = True
