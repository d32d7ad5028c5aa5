//! Every way of putting it names what it should and nothing that would lead astray.

use super::*;
use lemon_spec::{Answer, AnswerRule, Language, Next, Share, render, validate};
use lemon_world::{SKILLS, Skill, SkillFit, TaskFamily, fit};

fn features(kind: TaskKind, skills: Vec<&'static Skill>) -> TaskFeatures {
    TaskFeatures { kind, difficulty: 0.0, skills }
}

/// A pair in which the second reads the first, both with this mark.
fn team(mark: &str, base: &str) -> Spec {
    let agent = |id: &str, after: &[&str]| Agent {
        id: id.to_owned(),
        base: base.to_owned(),
        role: None,
        duty: Some(mark.to_owned()),
        capacity: "large".to_owned(),
        after: after.iter().map(|id| (*id).to_owned()).collect(),
        share: Share::Reply,
        tools: Vec::new(),
    };
    let answer = Answer { from: vec!["a2".to_owned()], by: AnswerRule::Last };
    Spec { agents: vec![agent("a1", &[]), agent("a2", &["a1"])], answer, next: Next::Stop }
}

fn kinds(family: TaskFamily) -> &'static [TaskKind] {
    match family {
        TaskFamily::Reckoning => &[TaskKind::Number, TaskKind::Options],
        TaskFamily::Knowing => &[TaskKind::Knowledge],
        TaskFamily::Coding => &[TaskKind::Program],
    }
}

fn told(agent: &Agent) -> String {
    format!("{} {}", agent.role.as_deref().unwrap_or_default(), agent.duty.as_deref().unwrap_or_default())
}

fn is_brief(duty: &str) -> bool {
    let duty = duty.to_lowercase();
    ["only the answer", "the answer alone", "without explanation", "no explanation"].iter().any(|p| duty.contains(p))
}

#[test]
fn every_wording_names_the_skill_and_is_valid() {
    for skill in SKILLS {
        for kind in kinds(skill.family) {
            for (mark, brief) in [(WORKED, false), (BRIEF, true), (REWORDED, false)] {
                for seed in 0..60 {
                    let worded = worded(&team(mark, "solver"), &features(*kind, vec![skill]), "q", seed);
                    assert!(validate(&render(&worded).text, &Language::default()).is_ok());
                    for agent in &worded.agents {
                        assert_eq!(fit(&[skill], &told(agent)), SkillFit::Helps, "{agent:?}");
                        assert_eq!(is_brief(agent.duty.as_deref().unwrap()), brief, "{agent:?}");
                    }
                }
            }
        }
    }
}

#[test]
fn where_no_skill_is_seen_none_is_named() {
    for kind in [TaskKind::Number, TaskKind::Options, TaskKind::Knowledge, TaskKind::Program] {
        for mark in [WORKED, BRIEF, REWORDED] {
            for seed in 0..60 {
                for agent in worded(&team(mark, "solver"), &features(kind, Vec::new()), "q", seed).agents {
                    assert_eq!(fit(&[], &told(&agent)), SkillFit::Neutral, "{agent:?}");
                    assert!(agent.role.is_none());
                }
            }
        }
    }
}

#[test]
fn the_seed_changes_words_and_nothing_else() {
    let skills = vec![&SKILLS[0], &SKILLS[3]];
    let words = |seed| worded(&team(WORKED, "solver"), &features(TaskKind::Number, skills.clone()), "q", seed);
    assert_eq!(words(1), words(1));
    let duties: std::collections::HashSet<String> = (0..100).map(|seed| told(&words(seed).agents[0])).collect();
    assert!(duties.len() > 30, "{}", duties.len());
    let bare = |mut spec: Spec| {
        spec.agents.iter_mut().for_each(|agent| (agent.role, agent.duty) = (None, None));
        spec
    };
    assert!((0..50).all(|seed| bare(words(seed)) == bare(words(0))));
    let own =
        Spec { agents: vec![Agent { duty: Some("Own words.".into()), ..words(0).agents[0].clone() }], ..words(0) };
    assert_eq!(worded(&own, &features(TaskKind::Number, skills), "q", 1), own);
}
