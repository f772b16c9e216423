// A page that code made, as large as the window. It stays in a frame: see sandboxed_displays.py.
document.getElementById("frame").src = `/frame${location.search}`;
