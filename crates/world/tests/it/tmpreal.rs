use crate::common::*;
#[test]
fn tmp_fit() {
    let data = public_data().unwrap();
    let t = std::time::Instant::now();
    let fitted = lemon_world::fit_real(&data).unwrap();
    std::fs::write("/tmp/fit/real.toml", toml::to_string(&fitted).unwrap()).unwrap();
    println!("fit {:?}", t.elapsed());
    let check = lemon_world::check_real(&fitted, &data).unwrap();
    println!("check {:?}", t.elapsed());
    for f in check.figures {
        println!(
            "{} {:11} {:9} {:60} {:7.1} {:7.1} {:+6.1} bound {:4.1} se {:4.1} n {}",
            if f.holds() {
                ' '
            } else if f.is_compatible() {
                '~'
            } else {
                '!'
            },
            f.set,
            f.level.unwrap_or(""),
            f.what,
            100.0 * f.record,
            100.0 * f.world,
            100.0 * (f.world - f.record),
            100.0 * f.bound.unwrap(),
            100.0 * f.error.unwrap(),
            f.cases
        );
    }
}
