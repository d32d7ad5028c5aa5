//! Names and things that stories are told with.

/// A first name.
#[derive(Clone, Copy)]
pub(super) struct Name {
    pub name: &'static str,
    pub she: bool,
}

const fn she(name: &'static str) -> Name {
    Name { name, she: true }
}

const fn he(name: &'static str) -> Name {
    Name { name, she: false }
}

#[rustfmt::skip]
pub(super) const NAMES: &[Name] = &[
    she("Anna"), she("Beatrix"), she("Carmen"), she("Dilan"), she("Elif"), she("Farida"), she("Greta"), she("Hana"),
    she("Imani"), she("Jolanta"), she("Keiko"), she("Leonie"), she("Mireille"), she("Nadia"), she("Olga"), she("Priya"),
    she("Ronja"), she("Sofia"), she("Tamsin"), she("Vera"), she("Wanda"), she("Yara"),
    he("Amir"), he("Bruno"), he("Cedric"), he("Dario"), he("Emil"), he("Felix"), he("Goran"), he("Hugo"), he("Ivan"),
    he("Jonas"), he("Kofi"), he("Luca"), he("Mateo"), he("Nils"), he("Oskar"), he("Pavel"), he("Rashid"), he("Sven"),
    he("Tariq"), he("Viktor"), he("Willem"), he("Yusuf"),
];

pub(super) const NUMBER_WORDS: [&str; 13] =
    ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"];

/// The words of a list; `None` if there is no such list.
#[rustfmt::skip]
pub(super) fn list(name: &str) -> Option<&'static [&'static str]> {
    Some(match name {
        // Things one can have many of, in the plural.
        "thing" => &["marbles", "stickers", "seashells", "postcards", "buttons", "coins", "beads", "badges", "pencils", "toy cars", "trading cards", "stamps", "acorns", "ribbons", "keyrings", "bottle caps"],
        "fruit" => &["apples", "pears", "plums", "oranges", "peaches", "mangoes", "lemons", "figs", "apricots", "kiwis"],
        "baked" => &["muffins", "rolls", "cookies", "pretzels", "scones", "cupcakes", "bagels", "tarts", "waffles"],
        "flower" => &["tulips", "roses", "daisies", "lilies", "sunflowers", "carnations", "irises", "dahlias"],
        "animal" => &["sheep", "goats", "hens", "ducks", "cows", "rabbits", "ponies", "geese"],
        "ware" => &["notebooks", "mugs", "scarves", "candles", "lamps", "plates", "T-shirts", "posters", "umbrellas", "cushions", "baskets", "puzzles"],
        "food" => &["sandwiches", "pizzas", "salads", "burgers", "tacos", "wraps", "soups", "noodle bowls"],
        "drink" => &["lemonades", "smoothies", "teas", "coffees", "milkshakes", "bottles of juice"],
        "book" => &["novels", "comics", "atlases", "cookbooks", "textbooks", "travel guides", "biographies"],
        "vehicle" => &["buses", "vans", "taxis", "trucks", "bicycles", "scooters", "trams"],
        "people" => &["children", "students", "guests", "visitors", "passengers", "players", "volunteers", "campers"],
        "part" => &["bolts", "hinges", "gears", "valves", "screws", "springs", "bearings"],
        "plant" => &["tomato plants", "cherry trees", "rose bushes", "pumpkins", "bean rows", "lavender pots", "cabbages"],
        // Single things, with a consonant first.
        "container" => &["box", "bag", "crate", "basket", "tin", "carton", "jar", "tray"],
        "containers" => &["boxes", "bags", "crates", "baskets", "tins", "cartons", "jars", "trays"],
        "gadget" => &["tent", "jacket", "guitar", "bicycle", "camera", "sofa", "laptop", "washing machine", "drill", "violin", "desk", "kayak"],
        "field" => &["garden", "playground", "terrace", "parking lot", "meadow", "vegetable bed", "courtyard", "field"],
        "room" => &["kitchen", "hallway", "bedroom", "workshop", "classroom", "cellar", "studio"],
        "place" => &["market", "school", "library", "museum", "harbour", "station", "bakery", "theatre", "farm", "gym"],
        "shop" => &["bakery", "bookshop", "toy shop", "florist's", "hardware store", "café", "bicycle shop", "grocery"],
        "job" => &["gardener", "carpenter", "painter", "tutor", "cleaner", "waiter", "driver", "plumber", "cook"],
        "machine" => &["printer", "loom", "pump", "oven", "bottling line", "sawmill", "robot", "press"],
        "relative" => &["brother", "sister", "cousin", "neighbour", "friend", "classmate", "uncle", "aunt"],
        "colour" => &["red", "blue", "green", "yellow", "white", "black", "purple"],
        "colourb" => &["silver", "golden", "brown", "grey", "pink", "turquoise"],
        "weekday" => &["Monday", "Tuesday", "Wednesday", "Thursday", "Friday"],
        "subject" => &["history", "biology", "geography", "chemistry", "music", "French"],
        "liquid" => &["juice", "milk", "paint", "water", "soup", "cider", "syrup"],
        "club" => &["chess club", "choir", "swimming club", "drama group", "robotics team", "hiking club"],
        "city" => &["Brookfield", "Ashton", "Millbrook", "Harlow Bay", "Stonebridge", "Westmere", "Oakdale", "Fernhill"],
        "material" => &["cement", "gravel", "flour", "rice", "sugar", "coffee", "sand", "grain"],
        _ => return None,
    })
}
