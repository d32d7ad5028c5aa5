use super::*;
use proptest::prelude::*;

const TESTS: [&str; 3] = [
    "Debby had 32 pieces of chalk while her sister had 42. If they used 35 pieces, how many pieces do they have left?",
    "A ship carries 1,200 crates of tea. At the harbor 300 crates are unloaded. How many crates stay on board?",
    "Each of 7 hikers carries 3 bottles. How many bottles do the hikers carry?",
];

fn check(text: &str, expected: &str) {
    let found = match Leaks::of(&TESTS).find(text) {
        Some(Leak::Exact) => "exact",
        Some(Leak::Near(_)) => "near",
        None => "no",
    };
    assert_eq!(found, expected, "{text}");
}

#[test]
fn leaks_are_found_under_other_names_and_numbers() {
    check(TESTS[0], "exact");
    check(
        "a ship carries 1200 crates of tea at the harbor 300 crates are unloaded - how many crates stay on board",
        "exact",
    );
    check(
        "A ship carries 90 crates of tea. At the harbor 55 crates are unloaded. How many crates stay on board?",
        "near",
    );
    check("Each of seven hikers carries nine bottles. How many bottles do the hikers carry?", "near");
    check(
        "Omar had 3 pieces of chalk while her sister had 4. If they used 5 pieces, how many pieces do they have left?",
        "near",
    );
    check("It rained. Each of 2 hikers carries 5 bottles. How many bottles do the hikers carry? Say it.", "near");
    check("Each of 7 farmers has 3 cows and sells one. How many cows are there in the village after that?", "no");
    check("", "no");
    check("7", "no");
}

#[test]
fn filters_count_what_they_drop() {
    let texts = vec![
        TESTS[0],
        "Something else entirely happened on the way to school.",
        "Each of 9 hikers carries 4 bottles. How many bottles do the hikers carry?",
    ];
    let (kept, dropped) = Leaks::of(&TESTS).filter(texts, |text| text);
    assert_eq!(kept.len(), 1);
    assert_eq!(dropped, Dropped { exact: 1, near: 1 });
}

#[test]
fn look_alikes_are_one_cluster() {
    let other = "Each of 8 hikers carries 2 bottles. How many bottles do the hikers carry?";
    assert_eq!(clusters(&[TESTS[0], TESTS[2], TESTS[1], other, TESTS[0]]), [0, 1, 2, 1, 0]);
    assert!(clusters::<&str>(&[]).is_empty());
}

proptest! {
    #[test]
    fn renaming_and_renumbering_never_hides_a_leak(which in 0..3usize, seed: u64, small: bool) {
        let mut random = crate::seeded(seed);
        let [person] = crate::person::Person::draw(&mut random);
        let words = TESTS[which].split(' ').map(|word| match word {
            "Debby" => person.name.to_owned(),
            word if word.starts_with(|c: char| c.is_ascii_digit()) => random.within(2, 999).to_string(),
            word => word.to_owned(),
        });
        let mut text = words.collect::<Vec<_>>().join(" ");
        if small {
            text = text.to_lowercase();
        }
        prop_assert!(Leaks::of(&TESTS).find(&text).is_some(), "{}", text);
    }

    #[test]
    fn the_index_finds_what_comparing_all_pairs_finds(tests in prop::collection::vec("[ab]( [abc]){4,9}", 1..6), text in "[ab]( [abc]){4,9}") {
        let runs = |text: &str| {
            let words: Vec<String> = text.split(' ').map(str::to_owned).collect();
            words.windows(3).map(<[String]>::to_vec).collect::<HashSet<_>>()
        };
        let near = tests.iter().any(|test| {
            let (one, other) = (runs(test), runs(&text));
            one.intersection(&other).count() as f64 >= NEAR * one.len().min(other.len()) as f64
        });
        prop_assert_eq!(Leaks::of(&tests).find(&text).is_some(), near || tests.contains(&text));
    }

    #[test]
    fn any_text_is_searched_without_panic(text in any::<String>(), test in any::<String>()) {
        let leaks = Leaks::of(&[test.as_str()]);
        let _ = leaks.find(&text);
        prop_assert!(words(&test).is_empty() || leaks.find(&test) == Some(Leak::Exact));
    }
}
