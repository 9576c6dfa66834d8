// Paged caches: position p of a slot lies in row pages[slot][p / PAGE] * PAGE + p % PAGE. The including kernel declares
// `pages`.
const PAGE: u32 = 64u;

fn cache_row(slot: u32, position: u32, per_slot: u32) -> u32 {
    let page = min(position / PAGE, per_slot - 1u);
    return pages[slot * per_slot + page] * PAGE + position % PAGE;
}
