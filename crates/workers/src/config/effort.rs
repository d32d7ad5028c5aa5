//! Effort: one entry of the configuration as several capacities, and what orchestrators are told of each.

use super::Capacity;
use lemon_spec::{Effort, Style};

/// The capacities that one entry `[capacity.NAME]` makes: `NAME`, or `NAME-brief` and so on, in the order of its `efforts`.
pub(super) fn capacities(name: String, mut capacity: Capacity) -> Result<Vec<(String, Capacity)>, String> {
    let Some(efforts) = capacity.efforts.take() else { return Ok(vec![(name, capacity)]) };
    if capacity.style.is_some() {
        return Err(format!("capacity.{name} has `style` and `efforts`: remove one of them"));
    }
    if efforts.is_empty() {
        let all = Style::ALL.iter().map(|style| format!("\"{style}\"")).collect::<Vec<_>>().join(", ");
        return Err(format!("capacity.{name}.efforts must name at least one of {all}"));
    }
    let level = |style: &Style| (format!("{name}-{style}"), Capacity { style: Some(*style), ..capacity.clone() });
    Ok(efforts.iter().map(level).collect())
}

/// That no two capacities have one name, which efforts can bring about.
pub(super) fn check_names(capacities: &[(String, Capacity)]) -> Result<(), String> {
    let twice = |at: usize, name: &String| capacities.iter().skip(at + 1).any(|(other, _)| other == name);
    match capacities.iter().enumerate().find(|(at, (name, _))| twice(*at, name)) {
        Some((_, (name, _))) => Err(format!("two capacities are called `{name}`; `efforts` makes NAME-brief of NAME")),
        None => Ok(()),
    }
}

/// What orchestrators are told of the capacities; nothing where none has a style.
pub(super) fn efforts(capacities: &[(String, Capacity)]) -> Vec<Effort> {
    if capacities.iter().all(|(_, capacity)| capacity.style.is_none()) {
        return Vec::new();
    }
    let price = |capacity: &Capacity| capacity.price.map(|price| price.output).filter(|price| *price > 0.0);
    let lowest = capacities.iter().filter_map(|(_, capacity)| price(capacity)).fold(f64::INFINITY, f64::min);
    // Where all cost the same, the price tells nothing.
    let differ = capacities.iter().any(|(_, capacity)| price(capacity).is_some_and(|price| price > lowest));
    let effort = |(_, capacity): &(String, Capacity)| Effort {
        style: capacity.style,
        price: price(capacity).filter(|_| differ).map(|price| price / lowest),
    };
    capacities.iter().map(effort).collect()
}

#[cfg(test)]
mod tests {
    use super::super::Config;
    use super::*;

    fn read(text: &str) -> Result<Config, String> {
        toml::from_str(text).map_err(|error| error.message().to_owned())
    }

    #[test]
    fn one_entry_makes_a_capacity_of_each_effort() {
        let config = read(
            "[capacity.tiny]\nlocal = 'a.gguf'\nstyle = 'brief'\n\
             [capacity.qwen]\nlocal = 'b.gguf'\ntemperature = 0.7\nefforts = ['brief', 'program', 'reasoned']\n",
        )
        .unwrap();
        let told = |(name, it): &(String, Capacity)| (name.clone(), it.style, it.max_tokens(), it.temperature);
        let found: Vec<_> = config.capacity.iter().map(told).collect();
        let expected = [
            ("tiny".to_owned(), Some(Style::Brief), 64, None),
            ("qwen-brief".to_owned(), Some(Style::Brief), 64, Some(0.7)),
            ("qwen-program".to_owned(), Some(Style::Program), 512, Some(0.7)),
            ("qwen-reasoned".to_owned(), Some(Style::Reasoned), 1024, Some(0.7)),
        ];
        assert_eq!(found, expected);
        let language = config.language().unwrap();
        assert!(language.tests && config.runs_programs());
        assert_eq!(language.capacities.len(), language.efforts.len());
        assert_eq!(
            language.told_capacities()[2],
            "qwen-program (writes a program that computes the answer, about 70 tokens)"
        );
    }

    #[test]
    fn limits_of_an_entry_hold_for_all_its_efforts() {
        let config = read("[capacity.a]\nlocal = 'x'\nmax_tokens = 9\nefforts = ['brief', 'reasoned']\n").unwrap();
        assert!(config.capacity.iter().all(|(_, capacity)| capacity.max_tokens() == 9));
        let without = read("[capacity.a]\nlocal = 'x'\n").unwrap();
        assert_eq!((without.capacity[0].1.max_tokens(), without.runs_programs()), (1024, false));
        assert!(without.language().unwrap().efforts.is_empty(), "nothing is told where no style is configured");
    }

    #[test]
    fn faults_are_named() {
        let fault = |keys: &str| read(&format!("[capacity.a]\nlocal = 'x'\n{keys}")).unwrap_err();
        let both = fault("style = 'brief'\nefforts = ['brief']\n");
        assert!(both.contains("capacity.a has `style` and `efforts`"), "{both}");
        let none = fault("efforts = []\n");
        assert!(
            none.contains("capacity.a.efforts must name at least one of \"brief\", \"program\", \"reasoned\""),
            "{none}"
        );
        let unknown = fault("style = 'terse'\n");
        assert!(unknown.contains("terse") && unknown.contains("brief"), "{unknown}");
        assert!(fault("efforts = ['terse']\n").contains("terse"));
        let twice = fault("efforts = ['brief', 'brief']\n");
        assert!(twice.contains("two capacities are called `a-brief`"), "{twice}");
        let key = fault("maxtokens = 3\n");
        assert!(key.contains("unknown field `maxtokens`"), "{key}");
    }

    #[test]
    fn prices_are_told_where_they_differ() {
        let entry = |name: &str, price: f64| {
            format!(
                "[capacity.{name}]\nbase_url = 'http://a'\nmodel = 'm'\nprice = {{ input = 1.0, output = {price:?} }}\n"
            )
        };
        let config = read(&format!("{}style = 'brief'\n{}", entry("a", 2.0), entry("b", 8.0))).unwrap();
        let prices: Vec<_> = config.language().unwrap().efforts.iter().map(|effort| effort.price).collect();
        assert_eq!(prices, [Some(1.0), Some(4.0)]);
        let same = read(&format!("{}style = 'brief'\n{}", entry("a", 2.0), entry("b", 2.0))).unwrap();
        assert!(same.language().unwrap().efforts.iter().all(|effort| effort.price.is_none()));
    }
}
