//! Tells sentences about one owner and other people, with pronouns where they are clear.

use super::theme::{THEMES, Theme};
use crate::person::{Person, Pronouns};
use crate::situation::{WORDED, written};
use crate::template::render;
use crate::wording::capitalised;
use lemon_num::Random;

/// Owners who are known by what they do.
const ROLES: [(&str, Pronouns); 10] = [
    ("farmer", Pronouns::He),
    ("baker", Pronouns::She),
    ("teacher", Pronouns::She),
    ("shopkeeper", Pronouns::He),
    ("librarian", Pronouns::She),
    ("gardener", Pronouns::He),
    ("coach", Pronouns::She),
    ("cook", Pronouns::He),
    ("painter", Pronouns::She),
    ("neighbor", Pronouns::He),
];

pub(crate) struct Teller {
    owner: Person,
    /// The owner's name is an occupation: `a baker`, later `the baker`.
    has_role: bool,
    mentioned: bool,
    /// A pronoun would be understood as the owner.
    near: bool,
    others: [Person; 3],
    theme: Theme,
    other_theme: Theme,
    verbs: (usize, usize),
    numbers: Vec<(char, i64)>,
    worded: bool,
    /// A number that only spare sentences use.
    spare: i64,
}

impl Teller {
    pub fn draw(random: &mut Random) -> Self {
        let [mut owner, first, second, third] = Person::draw(random);
        let has_role = random.chance(0.12);
        if has_role {
            let (name, pronouns) = ROLES[random.below(ROLES.len())];
            owner = Person { name, pronouns };
        }
        let theme = random.below(THEMES.len());
        let other_theme = (theme + 1 + random.below(THEMES.len() - 1)) % THEMES.len();
        Teller {
            owner,
            has_role,
            mentioned: false,
            near: false,
            others: [first, second, third],
            theme: THEMES[theme],
            other_theme: THEMES[other_theme],
            verbs: (0, 0),
            numbers: Vec::new(),
            worded: random.chance(WORDED),
            spare: random.within(2, 60),
        }
    }

    pub fn set(&mut self, name: char, value: i64) {
        self.numbers.retain(|(other, _)| *other != name);
        self.numbers.push((name, value));
    }

    /// A sentence with a capital; templates of statements have no stop at the end.
    pub fn tell(&mut self, template: &str, random: &mut Random) -> String {
        self.verbs = (random.below(3), random.below(3));
        // Now and then a name where a pronoun would do.
        self.near &= random.chance(0.8);
        capitalised(&render(template, random, |key, before| self.value(key, before)))
    }

    fn value(&mut self, key: &str, before: &str) -> String {
        let theme = &self.theme;
        match key {
            "t" => theme.many.to_owned(),
            "one" => theme.one.to_owned(),
            "packs" => theme.packs.to_owned(),
            "pack" => theme.pack.to_owned(),
            "place" => theme.place.to_owned(),
            "got" => theme.got[self.verbs.0].to_owned(),
            "lost" => theme.lost[self.verbs.1].to_owned(),
            "u" => self.other_theme.many.to_owned(),
            "z" => self.spare.to_string(),
            "P" => self.named(),
            "S" => self.owner_as("he"),
            "O" => self.owner_as("him"),
            "H" => self.owner_as("his"),
            "Q" => self.other(0),
            "R" => self.other(1),
            "V" => self.other(2),
            "Q.his" => self.others[0].form("his").to_owned(),
            _ => {
                let number = self.numbers.iter().find(|(name, _)| key.chars().eq([*name]));
                number.map_or(String::new(), |(_, number)| written(*number, self.worded && !before.ends_with('$')))
            }
        }
    }

    fn owner_as(&mut self, form: &str) -> String {
        match (self.near, form) {
            (true, _) => self.owner.form(form).to_owned(),
            (false, "his") => self.named() + "'s",
            (false, _) => self.named(),
        }
    }

    fn named(&mut self) -> String {
        let article = match (self.has_role, self.mentioned) {
            (false, _) => "",
            (true, false) => "a ",
            (true, true) => "the ",
        };
        (self.mentioned, self.near) = (true, true);
        format!("{article}{}", self.owner.name)
    }

    fn other(&mut self, index: usize) -> String {
        let other = self.others[index];
        self.near &= other.pronouns != self.owner.pronouns;
        other.name.to_owned()
    }
}
