//! What every dependency must be: licensed as we allow, from the public registry, there in one version, and no newer than our
//! own minimum Rust version.
//!
//! `deny.toml` is the one table. Where `cargo deny` is installed it reads the table; elsewhere the same checks are made here from
//! `cargo metadata`, because compiling `cargo deny` takes longer than all other checks together.

use anyhow::{Context, Result};
use serde::Deserialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// The part of `deny.toml` that is read here.
#[derive(Debug, Deserialize)]
pub struct Table {
    licenses: Licenses,
    bans: Bans,
}

#[derive(Debug, Deserialize)]
struct Licenses {
    allow: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Bans {
    skip: Vec<Skip>,
}

/// An older version of a crate that is accepted, as `name@version`.
#[derive(Debug, Deserialize)]
struct Skip {
    #[serde(rename = "crate")]
    name: String,
}

impl Table {
    /// # Errors
    /// The text is no such table.
    pub fn parse(text: &str) -> Result<Self> {
        toml::from_str(text).context("deny.toml")
    }
}

/// Everything in the output of `cargo metadata` that the table does not allow.
pub fn faults(metadata: &Value, table: &Table) -> Vec<String> {
    let used: BTreeSet<&str> = list(&metadata["resolve"]["nodes"]).filter_map(|node| node["id"].as_str()).collect();
    let is_used = |package: &&Value| package["id"].as_str().is_some_and(|id| used.contains(id));
    let packages: Vec<&Value> = list(&metadata["packages"]).filter(is_used).collect();
    // Only what is ours has no source.
    let (ours, foreign): (Vec<&Value>, Vec<&Value>) = packages.iter().partition(|package| package["source"].is_null());
    let mut faults = Vec::new();
    for package in &foreign {
        faults.extend(license_fault(package, table));
        faults.extend(source_fault(package));
    }
    faults.extend(version_faults(&foreign, table));
    faults.extend(rust_version_faults(&ours, &foreign));
    faults
}

fn license_fault(package: &Value, table: &Table) -> Option<String> {
    let Some(text) = package["license"].as_str() else { return Some(format!("{}: names no license", title(package))) };
    let expression = match spdx::Expression::parse_mode(text, spdx::ParseMode::LAX) {
        Ok(expression) => expression,
        Err(error) => return Some(format!("{}: license `{text}` cannot be read: {}", title(package), error.reason)),
    };
    let allowed = expression.evaluate(|requirement| table.licenses.allow.contains(&requirement.to_string()));
    (!allowed).then(|| format!("{}: license `{text}` is not allowed; see deny.toml", title(package)))
}

fn source_fault(package: &Value) -> Option<String> {
    let source = package["source"].as_str()?;
    let is_public =
        source.starts_with("registry+") && source.ends_with("/crates.io-index") || source.starts_with("sparse+");
    (!is_public).then(|| format!("{}: comes from {source}; only the public registry is allowed", title(package)))
}

fn version_faults(foreign: &[&Value], table: &Table) -> Vec<String> {
    let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for package in foreign {
        versions.entry(text(package, "name")).or_default().insert(text(package, "version"));
    }
    let skipped =
        |name: &str, version: &str| table.bans.skip.iter().any(|skip| skip.name == format!("{name}@{version}"));
    let mut faults = Vec::new();
    for (name, versions) in &versions {
        let left: Vec<&str> = versions.iter().copied().filter(|version| !skipped(name, version)).collect();
        if left.len() > 1 {
            faults.push(format!(
                "{name}: in {} versions ({}); use one, or say why in deny.toml",
                left.len(),
                left.join(", ")
            ));
        }
    }
    let is_there = |skip: &Skip| {
        let (name, version) = skip.name.split_once('@').unwrap_or((&skip.name, ""));
        versions.get(name).is_some_and(|versions| versions.contains(version))
    };
    let unused = table.bans.skip.iter().filter(|skip| !is_there(skip));
    faults.extend(unused.map(|skip| format!("{}: not used any more; remove it from deny.toml", skip.name)));
    faults
}

/// Every crate of ours states the same minimum Rust version, and no dependency needs a newer one. The compiler proves the rest
/// where it is of that version; elsewhere clippy's `incompatible_msrv` does.
fn rust_version_faults(ours: &[&Value], foreign: &[&Value]) -> Vec<String> {
    let mut faults = Vec::new();
    let minimum: BTreeSet<Option<&str>> = ours.iter().map(|package| package["rust_version"].as_str()).collect();
    let [Some(minimum)] = minimum.into_iter().collect::<Vec<_>>()[..] else {
        faults.push("our crates state different minimum Rust versions; use rust-version.workspace = true".to_owned());
        return faults;
    };
    for package in foreign {
        let Some(needed) = package["rust_version"].as_str() else { continue };
        if numbers(needed) > numbers(minimum) {
            faults.push(format!("{}: needs Rust {needed}, ours is {minimum}", title(package)));
        }
    }
    faults
}

fn numbers(version: &str) -> [u64; 3] {
    let mut parts = version.split('.').map(|part| part.parse().unwrap_or(0));
    [(); 3].map(|()| parts.next().unwrap_or(0))
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text<'a>(package: &'a Value, key: &str) -> &'a str {
    package[key].as_str().unwrap_or("?")
}

fn title(package: &Value) -> String {
    format!("{} {}", text(package, "name"), text(package, "version"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const REGISTRY: &str = "registry+https://example.org/crates.io-index";
    const TABLE: &str =
        "[licenses]\nallow = ['MIT', 'Apache-2.0 WITH LLVM-exception']\n[bans]\nskip = [{ crate = 'a@1.0.0' }]\n";

    /// Checks the crate `b` beside the skipped `a` and one of ours.
    fn check(version: &str, license: &str, source: &str, needs: &str, expected: &[&str]) {
        let package = |name: &str, version: &str, license: &str, source: Value, needs: &str| json!({"id": format!("{name}{version}"), "name": name, "version": version, "license": license, "source": source, "rust_version": needs});
        let packages = [
            package("ours", "0.1.0", "none", Value::Null, "1.90"),
            package("a", "1.0.0", "MIT", json!(REGISTRY), "1.60"),
            package("a", "2.0.0", "MIT", json!(REGISTRY), "1.60"),
            package("b", "1.0.0", "MIT", json!(REGISTRY), "1.60"),
            package("b", version, license, json!(source), needs),
        ];
        let nodes: Vec<Value> = packages.iter().map(|package| json!({"id": package["id"]})).collect();
        let metadata = json!({"packages": packages, "resolve": {"nodes": nodes}});
        assert_eq!(faults(&metadata, &Table::parse(TABLE).unwrap()), expected);
    }

    #[test]
    fn dependencies_are_what_the_table_says() {
        check("1.0.0", "MIT OR GPL-3.0", REGISTRY, "1.90.0", &[]);
        check("1.0.0", "Apache-2.0 WITH LLVM-exception", REGISTRY, "1.90", &[]);
        check("1.0.0", "MIT/Zlib", REGISTRY, "1.90", &[]);
        check("1.0.0", "GPL-3.0", REGISTRY, "1.9", &["b 1.0.0: license `GPL-3.0` is not allowed; see deny.toml"]);
        check(
            "1.0.0",
            "MIT AND Zlib",
            REGISTRY,
            "1.9",
            &["b 1.0.0: license `MIT AND Zlib` is not allowed; see deny.toml"],
        );
        let git = "git+https://example.org/b";
        check(
            "1.0.0",
            "MIT",
            git,
            "1.9",
            &[&format!("b 1.0.0: comes from {git}; only the public registry is allowed")],
        );
        check("1.1.0", "MIT", REGISTRY, "1.9", &["b: in 2 versions (1.0.0, 1.1.0); use one, or say why in deny.toml"]);
        check("1.0.0", "MIT", REGISTRY, "1.90.1", &["b 1.0.0: needs Rust 1.90.1, ours is 1.90"]);
    }

    #[test]
    fn what_is_not_there_need_not_be_skipped() {
        let metadata = json!({"packages": [{"id": "ours", "name": "ours", "source": null, "rust_version": "1.90"}], "resolve": {"nodes": [{"id": "ours"}]}});
        let found = faults(&metadata, &Table::parse(TABLE).unwrap());
        assert_eq!(found, ["a@1.0.0: not used any more; remove it from deny.toml"]);
    }
}
