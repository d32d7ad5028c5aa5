//! Which field of knowledge a question is about, guessed from its words.

use lemon_world::{SKILLS, Skill};

/// The fields that the words of a question point to, the most likely first; two at most.
pub(super) fn guess(question: &str) -> Vec<&'static Skill> {
    let words = words(question);
    let mut scored: Vec<(usize, &str)> = CUES
        .iter()
        .map(|(field, cues)| (cues.split(' ').map(|cue| occurrences(&words, cue)).sum(), *field))
        .filter(|(score, _)| *score > 0)
        .collect();
    // Stable, so that ties go to the earlier field.
    scored.sort_by_key(|(score, _)| std::cmp::Reverse(*score));
    // Figures without any other word are sums.
    if scored.is_empty() && question.chars().any(|c| c.is_ascii_digit()) {
        scored.push((1, "mathematics"));
    }
    let skill = |(_, field): (usize, &str)| SKILLS.iter().find(|skill| skill.name == field);
    scored.into_iter().take(2).filter_map(skill).collect()
}

/// The words in lower case, each with a space before it.
fn words(text: &str) -> String {
    let bare = |c: char| if c.is_alphanumeric() { c } else { ' ' };
    let lower: String = text.chars().map(bare).flat_map(char::to_lowercase).collect();
    lower.split_whitespace().flat_map(|word| [" ", word]).chain([" "]).collect()
}

/// How often words begin with a cue; one that ends in `_` is a whole word.
fn occurrences(words: &str, cue: &str) -> usize {
    words.matches(&format!(" {}", cue.replace('_', " "))).count()
}

/// Beginnings of words by field. Fields with telling words come first; those of every day come last.
#[rustfmt::skip]
const CUES: &[(&str, &str)] = &[
    ("law", "law_ laws_ legal court statut plaintiff defendant contract tort jurisprud judge_ jury lawsuit sued \
        sue_ liab convict crime crimin murder robber burglar arson treaty treaties amendment constitutional \
        attorney lawyer evidence testif testimon negligen landowner deed_ tenant easement trespass homicide \
        manslaughter sovereign habeas felony hearsay motion_ objection admissib breach"),
    ("medicine", "medic patient disease clinic anatom nutrition diet symptom doctor aging ageing pain_ blood bone_ \
        bones muscle nerve_ nerves hormone vitamin drug surg diagnos syndrome chronic acute artery vein \
        kidney liver lung heart_ cardiac pregnan sexual nurse dose treatment therapy infect hospital fever \
        elderly older_ insulin physician organ_ pancrea tumor cancer"),
    ("biology", "biolog cell_ cells gene_ genes genetic species evolution virus viral protein dna rna chromosom \
        organism enzyme bacteri plant_ plants animal ecosystem photosynth membrane mitochond allele phenotyp \
        mutation population mammal reptil amphibian insect inherit replicat vaccin antibod immun offspring \
        predator"),
    ("chemistry", "chemi molecul acid atom_ atoms atomic reaction ion_ ions ionic bond_ bonds oxid reduc solution_ \
        molar mole_ moles electron_ electrons compound metal_ metals ph_ isotop element_ periodic catalyst \
        buffer nmr spectr equilibrium gas_ gases solub protons"),
    ("physics", "physic force_ forces energy velocit electric circuit planet star_ stars astronom quantum mass_ \
        momentum magnet wave_ waves wavelength light_ gravit resist volt current_ capacit accelerat telescop \
        orbit galax moon sun_ solar temperature heat_ particle photon frequenc lens speed_ ohm newton joule \
        watt radiat"),
    ("computing", "comput algorithm software network security machine_learning neural binary bit_ bits byte program \
        code_ data_ memory_ processor cache python java_ recursi pointer encrypt password server internet \
        attack_ sql array classif regression_model training kernel_ hash"),
    ("mathematics", "mathemat algebra calculus theorem equation statistic probabilit geometr integer prime_ polynomial \
        matrix vector group_ ring_ subgroup f_x function_ derivative integral_ modul divisib graph_of \
        triangle solve_ fraction decimal digit sum_of how_many median_ variance hypothesis_test correlat \
        sample_ proposition predicate logical_operators truth_table premises symboliz dice multipl sequence"),
    ("history", "histor century war_ empire ancient revolution archaeolog king_ kings queen emperor dynasty colon_ \
        colonial coloni medieval soviet napoleon slave roman_ rome_ neolithic paleolithic palaeolithic \
        neandert hominin homo_ artifact excavat reformation president_ nationalis imperial 17 18 19 excerpt \
        passage treaty_of"),
    ("economics", "econom market demand_ supply inflation account manage firm_ firms trade price elastic gdp monetary \
        fiscal unemployment tax_ taxes cost_ costs revenue profit consumer_ producer monopol invest asset \
        liabilit audit stock_ bond_market interest_rate brand product_ customer advert regress estimator \
        heteroscedas ols autocorrel business budget"),
    ("philosophy", "philosoph moral ethic argument fallac religio god_ kant plato aristotle socrates utilitar virtue \
        epicur descartes hume_ mill_ buddh islam christian hindu jew_ jews jewish judais sikh dao taois \
        church scripture bible prayer wrong_ ought justice rights_ scenario duty moore singer rawls soul"),
    ("society", "societ psycholog sociolog social behavio politic government geograph foreign_policy public_relation \
        child children therap cognit memory_ person emotion personal adolescen counsel test_ congress senat \
        vote voter party_ parties elect federal state_ nation urban migrat population_ country countries \
        region conflict nuclear military terroris peace media learn attitude development gender family \
        student"),
    ("general knowledge", "trivia general_knowledge facts_about famous song_ movie film_ sport game_ player invented animal_is \
        color colour letter_ percent_of_the_world share_of worldwide as_of author_ painted composed"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_is_a_skill_and_its_name_points_to_it() {
        for (field, cues) in CUES {
            assert!(SKILLS.iter().any(|skill| skill.name == *field), "{field}");
            assert!(!cues.contains("  "), "{field}");
            assert_eq!(guess(&format!("A question of {field}.")).first().map(|skill| skill.name), Some(*field));
        }
    }

    #[test]
    fn cues_are_found_where_words_begin() {
        let names = |text: &str| guess(text).into_iter().map(|skill| skill.name).collect::<Vec<_>>();
        assert_eq!(names("The plaintiff sued before the COURT."), ["law"]);
        assert_eq!(names("my lawn"), Vec::<&str>::new());
        assert_eq!(names(""), Vec::<&str>::new());
        assert_eq!(names("7 or 8?"), ["mathematics"]);
        assert!(names("law chemistry physics").len() == 2);
    }
}
