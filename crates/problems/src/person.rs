//! First names of many origins.

use lemon_num::Random;
use std::collections::HashSet;
use std::sync::LazyLock;

/// A person in a story.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Person {
    pub name: &'static str,
    pub pronouns: Pronouns,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pronouns {
    She,
    He,
}

impl Person {
    /// Several persons with different names.
    pub fn draw<const N: usize>(random: &mut Random) -> [Person; N] {
        let mut drawn = [person(0); N];
        for index in 0..N {
            loop {
                drawn[index] = person(random.below(SHE.len() + HE.len()));
                if !drawn[..index].contains(&drawn[index]) {
                    break;
                }
            }
        }
        drawn
    }

    /// The form that a template names: `he`, `him`, `his`, the same with a capital, and the name for anything else.
    pub fn form(&self, form: &str) -> &'static str {
        match (form, self.pronouns) {
            ("he", Pronouns::He) => "he",
            ("him", Pronouns::He) => "him",
            ("his", Pronouns::He) => "his",
            ("He", Pronouns::He) => "He",
            ("Him", Pronouns::He) => "Him",
            ("His", Pronouns::He) => "His",
            ("he", Pronouns::She) => "she",
            ("him" | "his", Pronouns::She) => "her",
            ("He", Pronouns::She) => "She",
            ("Him" | "His", Pronouns::She) => "Her",
            _ => self.name,
        }
    }
}

/// Whether a person here has this name, of any case.
pub(crate) fn is_name(word: &str) -> bool {
    static NAMES: LazyLock<HashSet<String>> =
        LazyLock::new(|| SHE.iter().chain(HE).map(|name| name.to_ascii_lowercase()).collect());
    NAMES.contains(&word.to_ascii_lowercase())
}

fn person(index: usize) -> Person {
    match index.checked_sub(SHE.len()) {
        None => Person { name: SHE[index], pronouns: Pronouns::She },
        Some(index) => Person { name: HE[index % HE.len()], pronouns: Pronouns::He },
    }
}

#[rustfmt::skip]
const SHE: &[&str] = &[
    "Abena", "Adele", "Aisha", "Akiko", "Alma", "Amina", "Ana", "Anika", "Anna", "Astrid", "Ayla", "Beatriz", "Bella", "Carla",
    "Carmen", "Chiara", "Chloe", "Clara", "Dalia", "Daria", "Diana", "Elena", "Ella", "Elsa", "Emma", "Esther", "Eva", "Farah",
    "Fatima", "Freya", "Gita", "Greta", "Hana", "Hannah", "Helen", "Ida", "Ines", "Ingrid", "Irina", "Isabel", "Jana", "Jasmin",
    "Julia", "Kadija", "Karin", "Keiko", "Lara", "Laura", "Leila", "Lena", "Lina", "Linh", "Lucia", "Lucy", "Luna", "Maeve",
    "Maja", "Maria", "Marta", "Maya", "Mei", "Mila", "Mina", "Mira", "Nadia", "Naomi", "Nia", "Nina", "Noor", "Nora",
    "Olga", "Olivia", "Paula", "Petra", "Priya", "Rania", "Rosa", "Ruth", "Sadia", "Salma", "Sana", "Sara", "Selma", "Sofia",
    "Stella", "Tanya", "Tara", "Teresa", "Thea", "Uma", "Vera", "Wanda", "Yara", "Yuki", "Zara", "Zoe",
];

#[rustfmt::skip]
const HE: &[&str] = &[
    "Aaron", "Adam", "Ahmed", "Alberto", "Ali", "Amir", "Anders", "Andre", "Anton", "Arjun", "Ben", "Boris", "Bruno", "Carlos",
    "Chen", "Cyril", "Daniel", "Dario", "David", "Dev", "Diego", "Dimitri", "Emil", "Enzo", "Erik", "Ethan", "Felix", "Finn",
    "Franz", "Gabriel", "George", "Hamid", "Hans", "Haruto", "Hassan", "Henry", "Hugo", "Ibrahim", "Igor", "Ivan", "Jack", "Jakob",
    "Jamal", "James", "Jan", "Javier", "Jonas", "Jorge", "Juan", "Kai", "Karim", "Karl", "Kenji", "Kofi", "Kwame", "Lars",
    "Leo", "Liam", "Louis", "Luca", "Luis", "Malik", "Marco", "Mario", "Mateo", "Max", "Milan", "Minh", "Mohamed", "Nabil",
    "Nils", "Noah", "Oliver", "Omar", "Oscar", "Otto", "Pablo", "Paul", "Pavel", "Pedro", "Peter", "Rafael", "Raj", "Ravi",
    "Remy", "Robin", "Samir", "Samuel", "Simon", "Sven", "Tariq", "Theo", "Thomas", "Tim", "Tom", "Viktor", "Vikram", "Yusuf",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_many_names_and_each_is_one() {
        let names: HashSet<_> = SHE.iter().chain(HE).collect();
        assert_eq!(names.len(), SHE.len() + HE.len());
        assert!(names.len() >= 150, "{}", names.len());
    }

    #[test]
    fn persons_of_a_story_differ() {
        let mut random = crate::seeded(1);
        for _ in 0..2000 {
            let [p, q, r] = Person::draw(&mut random);
            assert!(p != q && q != r && p != r);
        }
    }
}
