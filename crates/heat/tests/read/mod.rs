//! Reads the data of a heat map, as its script does.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used)]

/// A heat map.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Map {
    pub name: String,
    pub title: String,
    pub merged: u64,
    pub labels: Vec<String>,
    /// Begin and end of each column, in microseconds after the first begin.
    pub times: Vec<(u64, u64)>,
    pub keys: Vec<Vec<String>>,
    pub frames: Vec<String>,
    /// Column, key, label, count.
    pub cells: Vec<(usize, usize, String, i64)>,
}

impl Map {
    /// The sum of the counts of a key and a bucket.
    pub fn sum(&self, key: usize, label: &str) -> i64 {
        self.cells.iter().filter(|(_, k, l, _)| *k == key && l == label).map(|(.., count)| count).sum()
    }
}

struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn number(&mut self) -> u64 {
        let mut value = 0;
        for shift in (0..).step_by(7) {
            let (first, rest) = self.0.split_first().unwrap();
            self.0 = rest;
            value |= u64::from(first & 127) << shift;
            if *first < 128 {
                break;
            }
        }
        value
    }

    fn text(&mut self) -> String {
        let length = self.number() as usize;
        let (text, rest) = self.0.split_at(length);
        self.0 = rest;
        String::from_utf8(text.to_vec()).unwrap()
    }

    fn list<T>(&mut self, mut one: impl FnMut(&mut Self) -> T) -> Vec<T> {
        (0..self.number()).map(|_| one(self)).collect()
    }

    fn part(&mut self) -> Bytes<'a> {
        let length = self.number() as usize;
        let (part, rest) = self.0.split_at(length);
        self.0 = rest;
        Bytes(part)
    }
}

fn base64(text: &str) -> Vec<u8> {
    let value = |byte: u8| match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' => 62,
        _ => 63,
    };
    let mut out = Vec::new();
    for four in text.trim().as_bytes().chunks(4) {
        let all = four
            .iter()
            .fold(0u32, |all, byte| all << 6 | u32::from(if *byte == b'=' { 0 } else { value(*byte) }));
        let bytes = 3 - four.iter().filter(|byte| **byte == b'=').count();
        out.extend(&all.to_be_bytes()[1..=bytes]);
    }
    out
}

/// The heat maps of a file.
pub fn read(file: &str) -> Vec<Map> {
    let (_, data) = file.split_once("class=\"data\">").unwrap();
    let compressed = base64(data.split_once('<').unwrap().0);
    let bytes = miniz_oxide::inflate::decompress_to_vec(&compressed).unwrap();
    Bytes(&bytes).list(|b| {
        let (name, title) = (b.text(), b.text());
        let (_stacks, _others, merged, _first) = (b.number(), b.number(), b.number(), b.number());
        let labels = b.list(|b| (b.text(), b.text(), b.text()).0);
        let (_wall, _start) = (b.number(), b.number());
        let mut time = 0;
        let mut after = |delta| {
            time += delta;
            time
        };
        let times = b.list(|b| (after(b.number()), after(b.number())));
        let _names = b.list(Bytes::text);
        let keys = b.list(|b| (b.list(Bytes::text), b.number()).0);
        let frames = b.list(Bytes::text);
        let _nodes = b.list(|b| (b.number(), b.number()));
        let [mut keys_of, mut key_of, mut cells_of, mut bucket_of, mut counts] = [(); 5].map(|()| b.part());
        let mut cells = Vec::new();
        for column in 0..times.len() {
            let mut key = 0;
            for _ in 0..keys_of.number() {
                key += key_of.number() as usize;
                let mut bucket = 0;
                for _ in 0..cells_of.number() {
                    bucket += bucket_of.number() as usize;
                    let n = counts.number();
                    cells.push((column, key, labels[bucket].clone(), (n >> 1) as i64 ^ -((n & 1) as i64)));
                }
            }
        }
        Map { name, title, merged, labels, times, keys, frames, cells }
    })
}
