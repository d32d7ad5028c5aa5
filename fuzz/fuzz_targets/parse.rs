//! Any text: it is refused with at least one fault whose place is true, or it is a team that survives rendering.
#![no_main]

use lemon_spec::{Language, edit, explain, render, validate};
use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;

static LANGUAGE: LazyLock<Language> = LazyLock::new(Language::default);

fuzz_target!(|text: &str| {
    match validate(text, &LANGUAGE) {
        Ok(plan) => {
            let rendered = render(plan.spec());
            let again = validate(&rendered.text, &LANGUAGE).expect("a rendered specification is valid");
            assert_eq!(again.spec(), plan.spec());
            assert_eq!(again.spans(), &rendered.spans);
            // The first few are enough here: a team of 64 has thousands.
            for edit in edit::edits(&plan, &LANGUAGE).iter().take(20) {
                edit::apply(&plan, edit, &LANGUAGE).expect("an enumerated edit applies");
            }
        }
        Err(rejection) => {
            assert!(rejection.errors().next().is_some());
            for fault in &rejection.diagnostics {
                assert!(text.get(fault.span.start..fault.span.end).is_some(), "{fault:?}");
            }
            assert!(!explain(&rejection.diagnostics, text, "team.yaml", false).is_empty());
        }
    }
});
