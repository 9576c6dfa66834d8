// What to do in each browser where WebGPU lacks.

const GUIDES = {
    chrome: [
        "Chrome, Edge and other Chromium browsers",
        "On by default since version 113 on Windows, macOS and ChromeOS, and since 121 on Android 12. Update the browser. On Linux, or if the graphics driver is on the block list, open chrome://flags, switch on “Unsafe WebGPU Support” and “Vulkan”, and restart the browser; chrome://gpu says what it found.",
    ],
    firefox: [
        "Firefox",
        "On by default since version 141 on Windows and 145 on Macs with Apple chips. Elsewhere open about:config, set dom.webgpu.enabled to true, and reload the page.",
    ],
    safari: [
        "Safari",
        "On by default since version 26 on macOS, iOS and iPadOS. Before that, look for “WebGPU” among the feature flags: Settings, Advanced, “Show features for web developers” on a Mac; Settings, Apps, Safari, Advanced, Feature Flags on a phone.",
    ],
};

/** The family of this browser. */
export function family(agent = navigator.userAgent) {
    if (/firefox|fxios/i.test(agent)) return "firefox";
    if (/chrom(e|ium)|crios|edg/i.test(agent)) return "chrome";
    return /safari/i.test(agent) ? "safari" : "chrome";
}

/** All guides, this browser's first. @returns {[string, string][]} */
export function guides() {
    const own = family();
    const names = Object.keys(GUIDES).sort((a, b) => Number(b === own) - Number(a === own));
    return names.map((name) => GUIDES[name]);
}
