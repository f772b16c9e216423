// The colours that were chosen in this browser, before anything is drawn; else they are the system's.
document.documentElement.style.colorScheme = localStorage.getItem("theme") ?? "";
