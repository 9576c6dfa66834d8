// Sets the chosen theme before anything is painted; a classic script, since modules run later.
try {
    const { theme } = JSON.parse(localStorage.getItem("inferencelayer") ?? "{}");
    if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch {
    // Storage is switched off: the system's theme.
}
