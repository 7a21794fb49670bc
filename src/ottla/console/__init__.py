"""`ottla console`: a page in the browser that shows a cluster, and changes it only when it was started with `--write`.

Stands below the command line and above `ottla.browse`: what a page shows, a command prints as JSON, made by the same
functions. The command itself is `ottla.cli.operations.console`.

address.py   which addresses it may listen at, and its token
guard.py     who may ask what: Host, Origin, token, headers (pure), and the middleware that enforces it
server.py    the HTTP server: routes to functions of (desk, query) that return plain values
desk.py      what every request works with: administrator, watcher, options, plans that were shown
watcher.py   facts read in the background while a page is open; old ones are shown with their age
*_pages.py   one file per group of pages
static/      the page itself: plain ES modules, no build, nothing from elsewhere
"""
