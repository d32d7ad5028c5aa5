//! The figures that come with the project.

use crate::common::*;
use lemon_world::{Choices, Fitted, LEVELS, Preset, REAL_LEVELS, SKILLS, TaskFamily};

const FAMILIES: [TaskFamily; 3] = [TaskFamily::Reckoning, TaskFamily::Knowing, TaskFamily::Coding];

#[test]
fn there_are_three_levels_each_better_than_the_one_before() {
    for family in FAMILIES {
        let levels = &Fitted::shipped().family(family).levels;
        assert_eq!(levels.iter().map(|level| level.name.as_str()).collect::<Vec<_>>(), LEVELS);
        for pair in levels.windows(2) {
            assert!(pair[0].accuracy < pair[1].accuracy, "{family:?}");
        }
    }
}

#[test]
fn a_harder_task_is_never_easier() {
    for level in FAMILIES.iter().flat_map(|family| &Fitted::shipped().family(*family).levels) {
        assert!(level.slope >= 0.0 && level.slope + level.bend >= 0.0, "{level:?}");
        for step in -40..40 {
            let at = |step: i32| level.at(f64::from(step) / 10.0);
            assert!(at(step + 1) <= at(step), "{level:?}");
        }
    }
}

#[test]
fn figures_are_within_reason() {
    for family in FAMILIES {
        let fit = Fitted::shipped().family(family);
        for level in &fit.levels {
            assert!(level.shared >= 0.0 && level.own >= 0.0 && level.spread >= 0.0, "{level:?}");
            assert!((0.0..=1.0).contains(&level.favourite) && (0.0..1.0).contains(&level.accuracy), "{level:?}");
            assert!(level.characters > 100.0, "{level:?}");
            let is_field = |name: &String| SKILLS.iter().any(|skill| skill.name == name && skill.family == family);
            assert!(level.fields.keys().all(is_field), "{level:?}");
            assert_eq!(level.fields.is_empty(), family != TaskFamily::Knowing);
        }
        let d = &fit.difficulty;
        let count = lemon_world::features("").len();
        assert_eq!([d.mean.len(), d.deviation.len(), d.weight.len()], [count; 3]);
        assert!(d.deviation.iter().all(|deviation| *deviation > 0.0));
    }
}

#[test]
fn reading_right_answers_helps_and_being_right_helps() {
    for family in FAMILIES {
        let revision = Fitted::shipped().family(family).revision;
        for (own, support) in [(0.0, -0.8), (0.0, 0.5), (1.0, -0.8), (1.0, 0.5)] {
            let here = revision.log_odds(own, support, 0.0);
            assert!(revision.log_odds(own, support + 0.1, 0.0) > here, "{family:?}");
            assert!(revision.log_odds(own, support, 0.5) > here, "{family:?}");
            assert!(revision.log_odds(1.0, support, 0.0) >= here, "{family:?}");
        }
    }
}

#[test]
fn figures_can_be_written_and_read_again() {
    let text = toml::to_string(Fitted::shipped()).unwrap();
    assert_eq!(&Fitted::parse(&text).unwrap(), Fitted::shipped());
    let broken = text.replacen("slope", "slop", 1);
    let error = Fitted::parse(&broken).unwrap_err().to_string();
    assert!(error.contains("slop"), "{error}");
    assert!(Fitted::parse("").is_err());
}

#[test]
fn the_teams_preset_differs_where_it_says() {
    let [calibrated, teams, _] = Preset::ALL.map(Preset::choices);
    assert_eq!(
        (calibrated.level_shift, calibrated.check, calibrated.check_trust, calibrated.judge),
        (0.0, 0.0, 0.0, 0.0)
    );
    assert!(teams.level_shift < 0.0 && teams.check > 0.0 && teams.check_trust > 0.0 && teams.judge > 0.0);
    assert!(teams.duty > calibrated.duty && teams.plan > calibrated.plan);
    let Choices { level_shift, duty, plan, check, check_trust, judge, .. } = teams;
    assert_eq!(Choices { level_shift, duty, plan, check, check_trust, judge, ..calibrated }, teams, "and nowhere else");
    assert!(calibrated.speed.is_sorted_by(|a, b| a > b), "larger models are slower");
    assert!((0.0..1.0).contains(&calibrated.bare_answer));
    assert_eq!(Preset::ALL.map(Preset::as_str), ["calibrated", "teams", "real-1.5b"]);
    for preset in Preset::ALL {
        assert_eq!(serde_json::to_value(preset).unwrap(), preset.as_str());
    }
    assert_eq!([calibrated.steadiness, teams.steadiness], [1.0, 1.0]);
    assert_eq!(shipped(Preset::default()).backend().name, "sim (calibrated)");
}

#[test]
fn the_real_preset_has_figures_for_every_set_and_level() {
    let fitted = Fitted::real();
    let families = FAMILIES.map(|family| fitted.family(family));
    let sets: Vec<&str> = fitted.sets.keys().map(String::as_str).collect();
    assert_eq!(sets, ["aqua", "multiarith", "svamp"]);
    for fit in families.into_iter().chain(fitted.sets.values()) {
        assert_eq!(fit.levels.iter().map(|level| level.name.as_str()).collect::<Vec<_>>(), REAL_LEVELS);
        for level in &fit.levels {
            assert!(level.tokens >= 1.0 && (0.0..1.0).contains(&level.cut) && level.own >= 0.0, "{level:?}");
        }
        let critic = &fit.readers["critic"];
        assert!(critic.right.len() == 2 && critic.at(0.0) < critic.at(1.0) && critic.tokens > 0.0, "{critic:?}");
        assert!((critic.at(0.5) - (critic.right[0] + critic.right[1]) / 2.0).abs() < 1e-12, "{critic:?}");
        assert!(fit.readers.values().all(|it| it.right.iter().all(|p| (0.0..=1.0).contains(p))));
    }
    let names: Vec<String> = shipped(Preset::Real).backend().levels.into_iter().map(|level| level.name).collect();
    assert_eq!(names, REAL_LEVELS);
}
