use super::*;
use lemon_credit::economy::FamilyReport;
use lemon_spec::edit::Family;
use proptest::prelude::*;
use std::collections::BTreeMap;

#[test]
fn checksums_are_those_of_the_standard() {
    let check = |bytes: &[u8], expected| assert_eq!(crc32c(bytes), expected, "{bytes:?}");
    check(b"", 0);
    check(b"123456789", 0xe306_9283);
    check(&[0; 32], 0x8a91_36aa);
    check(&[0xff; 32], 0x62a8_ab43);
    check(&std::array::from_fn::<u8, 32, _>(|at| at as u8), 0x46dd_794e);
    check(&std::array::from_fn::<u8, 32, _>(|at| 31 - at as u8), 0x113f_db5c);
}

#[test]
fn varints() {
    let check = |number, expected: &[u8]| {
        let mut bytes = Vec::new();
        prost::encoding::encode_varint(number, &mut bytes);
        assert_eq!(bytes, expected, "{number}");
        assert_eq!(Reader(&bytes).varint(), number);
    };
    check(0, &[0]);
    check(127, &[0x7f]);
    check(128, &[0x80, 1]);
    check(300, &[0xac, 2]);
    check(u64::MAX, &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]);
}

/// What the first version of this file wrote, which spelled out every byte: files are continued by later versions.
#[test]
fn bytes_stay_as_they_are() {
    let at = |step| StepMetrics { step, ..StepMetrics::default() };
    let written: String =
        file(&[first_look(), at(300), at(u64::MAX)]).iter().map(|byte| format!("{byte:02x}")).collect();
    let expected = "\
        1a00000000000000129bd82d09000000000000000010001a0d627261696e2e4576656e743a3231e6c78bcc00000000000000\
        f66c5a7509000000000000000010002abe010a160a0f68656c645f6f75742f726577617264150000803e0a170a1068656c64\
        5f6f75742f7375636365737315000000000a160a0f68656c645f6f75742f746f6b656e7315000000000a140a0d68656c645f\
        6f75742f636f737415000000000a150a0e68656c645f6f75742f76616c696415000000000a160a0f68656c645f6f75742f61\
        67656e747315000000000a160a0f68656c645f6f75742f726f756e647315000000000a160a0f68656c645f6f75742f726576\
        696577150000000091a67a490e00000000000000c5e5693f090000000000c0724010ac022a00754988f21600000000000000\
        4f61be2809000000000000f04310ffffffffffffffffff012a00b07ca487";
    assert_eq!(written, expected);
}

#[test]
fn all_scalars_are_found_again() {
    let file = file(&[first_look(), step(1), step(300)]);
    let read = read(&file);
    assert_eq!(
        read.iter().map(|event| (event.step, event.wall_time)).collect::<Vec<_>>(),
        [(0, 0.0), (1, 1.0), (300, 300.0)]
    );
    let check = |event: usize, tag: &str, expected: Option<f32>| {
        assert_eq!(read[event].scalars.get(tag).copied(), expected, "{tag} of event {event}");
    };
    check(0, "held_out/reward", Some(0.25));
    check(0, "rollouts/reward", None);
    check(0, "policy/entropy", None);
    check(1, "rollouts/reward", Some(0.5));
    check(1, "rollouts/tokens", Some(900.0));
    check(1, "held_out/reward", None);
    check(1, "policy/entropy", Some(2.0));
    check(1, "policy/gradient_norm", None);
    check(1, "tokens/worker", Some(4000.0));
    check(1, "tokens/credit_share", Some(0.25));
    check(1, "credit/duty/purchased", Some(3.0));
    check(1, "credit/duty/absolute", Some(0.125));
    check(1, "credit/duty/worth", None);
    assert_eq!(read[1].scalars.len(), scalars(&step(1)).len(), "no tag twice");
}

#[test]
fn what_does_not_fit_a_number_is_left_out() {
    let check = |value, expected| {
        let metrics =
            StepMetrics { entropy: value, rollouts: Means { runs: 1, ..Means::default() }, ..StepMetrics::default() };
        let found = scalars(&metrics).into_iter().find(|(tag, _)| tag == "policy/entropy").map(|(_, value)| value);
        assert_eq!(found, expected, "{value}");
    };
    check(1.5, Some(1.5));
    check(f64::NAN, None);
    check(f64::NEG_INFINITY, None);
    check(1e300, None);
}

#[test]
fn a_file_is_continued_or_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(FILE);
    let check = |metrics: &[StepMetrics]| {
        Board::write(folder.path(), metrics).unwrap();
        assert_eq!(fs::read(&path).unwrap(), file(metrics));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else is left");
    };
    check(&[]);
    check(&[first_look()]);
    check(&[first_look(), step(1), step(2)]);
    // A write that was cut short.
    let whole = fs::read(&path).unwrap();
    fs::write(&path, &whole[..whole.len() - 7]).unwrap();
    check(&[first_look(), step(1), step(2)]);
    // Taken up again at an earlier step.
    check(&[first_look(), step(1)]);
    fs::write(&path, "something else").unwrap();
    check(&[first_look(), step(1)]);
}

proptest! {
    #[test]
    fn what_is_written_can_be_read(steps in prop::collection::vec((any::<u64>(), any::<f64>()), 0..20)) {
        let metrics: Vec<StepMetrics> =
            steps.iter().map(|(at, entropy)| StepMetrics { entropy: *entropy, ..step(*at) }).collect();
        let read = read(&file(&metrics));
        prop_assert_eq!(read.len(), metrics.len());
        for (event, metrics) in read.iter().zip(&metrics) {
            prop_assert_eq!(event.step, metrics.step);
            prop_assert_eq!(event.scalars.clone(), scalars(metrics).into_iter().collect::<BTreeMap<_, _>>());
        }
    }
}

fn first_look() -> StepMetrics {
    StepMetrics { held_out: Some(Means { runs: 4, reward: 0.25, ..Means::default() }), ..StepMetrics::default() }
}

fn step(step: u64) -> StepMetrics {
    let duty = FamilyReport { purchased: 3, absolute: Some(0.125), ..FamilyReport::default() };
    StepMetrics {
        step,
        rollouts: Means { runs: 8, reward: 0.5, tokens: 900.0, ..Means::default() },
        rollout_tokens: 3000,
        credit_tokens: 1000,
        worker_tokens: 4000,
        entropy: 2.0,
        gradient_norm: f64::NAN,
        families: BTreeMap::from([(Family::Duty, duty)]),
        ..StepMetrics::default()
    }
}

struct Event {
    wall_time: f64,
    step: u64,
    scalars: BTreeMap<String, f32>,
}

/// The events after the first, which says what the file is.
fn read(mut file: &[u8]) -> Vec<Event> {
    let mut events = Vec::new();
    while !file.is_empty() {
        let (length, rest) = file.split_at(8);
        let (crc, rest) = rest.split_at(4);
        assert_eq!(crc, masked(crc32c(length)).to_le_bytes());
        let (data, rest) = rest.split_at(u64::from_le_bytes(length.try_into().unwrap()) as usize);
        let (crc, rest) = rest.split_at(4);
        assert_eq!(crc, masked(crc32c(data)).to_le_bytes());
        events.push(data);
        file = rest;
    }
    assert!(events.remove(0).ends_with(b"\x1a\x0dbrain.Event:2"));
    events.into_iter().map(event_of).collect()
}

fn event_of(data: &[u8]) -> Event {
    let mut reader = Reader(data);
    let mut event = Event { wall_time: f64::NAN, step: 0, scalars: BTreeMap::new() };
    while let Some(key) = reader.key() {
        match key {
            (1, 1) => event.wall_time = f64::from_le_bytes(reader.take(8).try_into().unwrap()),
            (2, 0) => event.step = reader.varint(),
            (5, 2) => {
                let mut summary = Reader(reader.bytes());
                while let Some(key) = summary.key() {
                    assert_eq!(key, (1, 2));
                    let mut value = Reader(summary.bytes());
                    assert_eq!(value.key(), Some((1, 2)));
                    let tag = String::from_utf8(value.bytes().to_vec()).unwrap();
                    assert_eq!(value.key(), Some((2, 5)));
                    event.scalars.insert(tag, f32::from_le_bytes(value.take(4).try_into().unwrap()));
                    assert_eq!(value.key(), None);
                }
            }
            other => panic!("a field that is not known: {other:?}"),
        }
    }
    event
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn key(&mut self) -> Option<(u64, u64)> {
        let key = (!self.0.is_empty()).then(|| self.varint())?;
        Some((key >> 3, key & 7))
    }

    fn varint(&mut self) -> u64 {
        let mut number = 0;
        for shift in (0..).step_by(7) {
            let byte = self.take(1)[0];
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                break;
            }
        }
        number
    }

    fn bytes(&mut self) -> &'a [u8] {
        let length = self.varint();
        self.take(length as usize)
    }

    fn take(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(count);
        self.0 = rest;
        taken
    }
}
