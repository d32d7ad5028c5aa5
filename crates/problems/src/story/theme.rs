//! What stories are about.

/// A kind of thing and what is done with it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Theme {
    pub many: &'static str,
    pub one: &'static str,
    pub packs: &'static str,
    pub pack: &'static str,
    /// How the owner comes to have more of it.
    pub got: [&'static str; 3],
    /// How the owner comes to have less of it.
    pub lost: [&'static str; 3],
    /// Where it is kept.
    pub place: &'static str,
}

const fn theme(
    [many, one, packs, pack]: [&'static str; 4],
    got: [&'static str; 3],
    lost: [&'static str; 3],
    place: &'static str,
) -> Theme {
    Theme { many, one, packs, pack, got, lost, place }
}

#[rustfmt::skip]
pub(crate) const THEMES: [Theme; 48] = [
    theme(["stickers", "sticker", "packs", "pack"], ["bought", "won", "collected"], ["gave away", "used", "lost"], "in an album"),
    theme(["marbles", "marble", "bags", "bag"], ["bought", "won", "found"], ["lost", "gave away", "traded away"], "in a jar"),
    theme(["cookies", "cookie", "trays", "tray"], ["baked", "made", "bought"], ["ate", "sold", "gave away"], "on a plate"),
    theme(["apples", "apple", "baskets", "basket"], ["picked", "bought", "gathered"], ["ate", "sold", "used up"], "in the kitchen"),
    theme(["books", "book", "boxes", "box"], ["bought", "borrowed", "received"], ["gave away", "sold", "returned"], "on a shelf"),
    theme(["pencils", "pencil", "packs", "pack"], ["bought", "received", "found"], ["lost", "broke", "gave away"], "in a drawer"),
    theme(["crayons", "crayon", "boxes", "box"], ["bought", "got", "found"], ["lost", "broke", "used up"], "in a box"),
    theme(["balloons", "balloon", "packets", "packet"], ["bought", "blew up", "received"], ["popped", "gave away", "let go of"], "in the hall"),
    theme(["cards", "card", "packs", "pack"], ["bought", "won", "collected"], ["lost", "sold", "traded away"], "in a binder"),
    theme(["coins", "coin", "rolls", "roll"], ["found", "saved", "earned"], ["spent", "lost", "gave away"], "in a piggy bank"),
    theme(["shells", "shell", "buckets", "bucket"], ["found", "gathered", "picked up"], ["lost", "gave away", "broke"], "in a bucket"),
    theme(["flowers", "flower", "bunches", "bunch"], ["picked", "bought", "planted"], ["sold", "gave away", "threw out"], "in the garden"),
    theme(["eggs", "egg", "cartons", "carton"], ["collected", "bought", "gathered"], ["used", "broke", "sold"], "in the fridge"),
    theme(["cupcakes", "cupcake", "trays", "tray"], ["baked", "made", "decorated"], ["ate", "sold", "gave away"], "on the table"),
    theme(["candles", "candle", "boxes", "box"], ["made", "bought", "received"], ["burned", "sold", "gave away"], "in a cupboard"),
    theme(["beads", "bead", "strings", "string"], ["bought", "found", "sorted"], ["used", "lost", "dropped"], "in a bowl"),
    theme(["buttons", "button", "bags", "bag"], ["found", "bought", "collected"], ["used", "lost", "sewed on"], "in a tin"),
    theme(["stamps", "stamp", "sheets", "sheet"], ["bought", "collected", "received"], ["used", "sold", "gave away"], "in an envelope"),
    theme(["toy cars", "toy car", "sets", "set"], ["bought", "got", "built"], ["lost", "broke", "gave away"], "on the floor"),
    theme(["puzzles", "puzzle", "boxes", "box"], ["bought", "borrowed", "received"], ["finished and gave away", "sold", "returned"], "in a closet"),
    theme(["photos", "photo", "albums", "album"], ["took", "printed", "received"], ["threw away", "gave away", "mailed"], "on the wall"),
    theme(["postcards", "postcard", "bundles", "bundle"], ["bought", "wrote", "collected"], ["mailed", "sent", "gave away"], "on the desk"),
    theme(["seeds", "seed", "packets", "packet"], ["bought", "collected", "received"], ["planted", "sowed", "lost"], "in a pot"),
    theme(["bricks", "brick", "stacks", "stack"], ["bought", "ordered", "carried in"], ["used", "broke", "sold"], "in the yard"),
    theme(["muffins", "muffin", "trays", "tray"], ["baked", "bought", "made"], ["ate", "sold", "gave away"], "in the kitchen"),
    theme(["sandwiches", "sandwich", "platters", "platter"], ["made", "ordered", "prepared"], ["ate", "sold", "handed out"], "on a tray"),
    theme(["oranges", "orange", "crates", "crate"], ["picked", "bought", "gathered"], ["ate", "squeezed", "sold"], "in a bowl"),
    theme(["tomatoes", "tomato", "baskets", "basket"], ["picked", "grew", "bought"], ["used", "sold", "ate"], "in the garden"),
    theme(["carrots", "carrot", "bunches", "bunch"], ["dug up", "bought", "grew"], ["ate", "sold", "threw out"], "in the cellar"),
    theme(["potatoes", "potato", "sacks", "sack"], ["dug up", "bought", "harvested"], ["peeled and cooked", "sold", "used"], "in the cellar"),
    theme(["walnuts", "walnut", "bags", "bag"], ["gathered", "bought", "found"], ["ate", "cracked and ate", "sold"], "in a sack"),
    theme(["strawberries", "strawberry", "bowls", "bowl"], ["picked", "bought", "washed and added"], ["ate", "sold", "cooked"], "in a bowl"),
    theme(["bottles", "bottle", "crates", "crate"], ["filled", "bought", "collected"], ["emptied and returned", "sold", "broke"], "in the garage"),
    theme(["magnets", "magnet", "sets", "set"], ["bought", "received", "collected"], ["lost", "gave away", "sold"], "on the fridge"),
    theme(["tickets", "ticket", "rolls", "roll"], ["won", "bought", "earned"], ["used", "sold", "lost"], "in a pocket"),
    theme(["ribbons", "ribbon", "boxes", "box"], ["cut", "bought", "won"], ["used", "gave away", "lost"], "in a drawer"),
    theme(["badges", "badge", "bags", "bag"], ["earned", "made", "bought"], ["gave away", "lost", "sold"], "on a board"),
    theme(["comics", "comic", "stacks", "stack"], ["bought", "borrowed", "found"], ["sold", "returned", "gave away"], "under the bed"),
    theme(["pens", "pen", "packs", "pack"], ["bought", "found", "received"], ["lost", "gave away", "used up"], "in a case"),
    theme(["stones", "stone", "piles", "pile"], ["found", "collected", "painted"], ["threw away", "lost", "gave away"], "on the windowsill"),
    theme(["feathers", "feather", "bundles", "bundle"], ["found", "collected", "bought"], ["used", "lost", "gave away"], "in a box"),
    theme(["dolls", "doll", "sets", "set"], ["bought", "sewed", "received"], ["gave away", "sold", "lent out"], "on the bed"),
    theme(["nails", "nail", "boxes", "box"], ["bought", "found", "sorted"], ["used", "bent", "lost"], "in the shed"),
    theme(["pancakes", "pancake", "plates", "plate"], ["made", "fried", "baked"], ["ate", "served", "burned"], "on the stove"),
    theme(["scarves", "scarf", "boxes", "box"], ["knitted", "bought", "made"], ["sold", "gave away", "mailed"], "in a chest"),
    theme(["plums", "plum", "buckets", "bucket"], ["picked", "gathered", "bought"], ["ate", "sold", "dried"], "in a bucket"),
    theme(["lemons", "lemon", "crates", "crate"], ["bought", "picked", "ordered"], ["squeezed", "used", "sold"], "on the counter"),
    theme(["letters", "letter", "bundles", "bundle"], ["wrote", "received", "typed"], ["mailed", "burned", "gave away"], "on the desk"),
];
