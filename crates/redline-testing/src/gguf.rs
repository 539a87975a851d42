//! Writes small GGUF files, and records the fields that it writes.

/// A field of a header, which needs bytes or whose count needs them.
pub enum Field {
    /// What it is, its offset, and its bytes.
    Bytes(String, u64, u64),
    /// What it counts, its value, the fewest bytes of an element, and the offset of the first.
    Count(String, u64, u64, u64),
}

/// A file with version 3 and alignment 32. Keys come before tensors, and their numbers are set at the end.
pub struct Writer {
    bytes: Vec<u8>,
    fields: Vec<Field>,
    keys: u64,
    tensors: u64,
    data: Vec<u8>,
}

impl Default for Writer {
    fn default() -> Self {
        let mut writer =
            Self { bytes: Vec::new(), fields: Vec::new(), keys: 0, tensors: 0, data: Vec::new() };
        writer.put("the file type", b"GGUF");
        writer.put("the version", &3u32.to_le_bytes());
        writer.put("the number of tensors", &[0; 8]);
        writer.put("the number of keys", &[0; 8]);
        writer
    }
}

impl Writer {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn version(mut self, version: u32) -> Self {
        self.bytes[4..8].copy_from_slice(&version.to_le_bytes());
        self
    }

    fn put(&mut self, what: &str, bytes: &[u8]) {
        self.fields.push(Field::Bytes(what.to_owned(), self.bytes.len() as u64, bytes.len() as u64));
        self.bytes.extend(bytes);
    }

    fn count(&mut self, what: &str, count: u64, least: u64) {
        self.put(what, &count.to_le_bytes());
        self.fields.push(Field::Count(what.to_owned(), count, least, self.bytes.len() as u64));
    }

    fn text(&mut self, what: &str, text: &str) {
        self.put(what, &(text.len() as u64).to_le_bytes());
        self.put(what, text.as_bytes());
    }

    fn key(&mut self, key: &str, code: u32) -> String {
        self.text(&format!("key {}", self.keys), key);
        self.keys += 1;
        let what = format!("the value of `{key}`");
        self.put(&what, &code.to_le_bytes());
        what
    }

    /// A key with a number of this type.
    pub fn number(mut self, key: &str, code: u32, bytes: &[u8]) -> Self {
        let what = self.key(key, code);
        self.put(&what, bytes);
        self
    }

    pub fn u32(self, key: &str, value: u32) -> Self {
        self.number(key, 4, &value.to_le_bytes())
    }

    pub fn u16(self, key: &str, value: u16) -> Self {
        self.number(key, 2, &value.to_le_bytes())
    }

    pub fn string(mut self, key: &str, value: &str) -> Self {
        let what = self.key(key, 8);
        self.text(&what, value);
        self
    }

    /// An array of numbers of this type.
    pub fn numbers<const N: usize>(mut self, key: &str, code: u32, values: &[[u8; N]]) -> Self {
        let what = self.key(key, 9);
        self.put(&what, &code.to_le_bytes());
        self.count(&what, values.len() as u64, N as u64);
        self.put(&what, values.as_flattened());
        self
    }

    pub fn strings(mut self, key: &str, values: &[&str]) -> Self {
        let what = self.key(key, 9);
        self.put(&what, &8u32.to_le_bytes());
        self.count(&what, values.len() as u64, 8);
        for value in values {
            self.text(&what, value);
        }
        self
    }

    /// A tensor; `shape` is row-major.
    pub fn tensor(mut self, name: &str, shape: &[u64], number: u32, data: &[u8]) -> Self {
        self.data.resize(self.data.len().next_multiple_of(32), 0);
        let offset = self.data.len() as u64;
        self.data.extend(data);
        self.tensor_at(name, shape, number, offset)
    }

    /// A tensor without data of its own.
    pub fn tensor_at(mut self, name: &str, shape: &[u64], number: u32, offset: u64) -> Self {
        self.text(&format!("the name of tensor {}", self.tensors), name);
        self.tensors += 1;
        let what = format!("the description of tensor `{name}`");
        self.put(&what, &(shape.len() as u32).to_le_bytes());
        for size in shape.iter().rev() {
            self.put(&what, &size.to_le_bytes());
        }
        self.put(&what, &number.to_le_bytes());
        self.put(&what, &offset.to_le_bytes());
        self
    }

    /// The fields in the order in which they are read.
    pub fn fields(&self) -> Vec<&Field> {
        self.fields.iter().collect()
    }

    pub fn tensors(&self) -> u64 {
        self.tensors
    }

    pub fn keys(&self) -> u64 {
        self.keys
    }

    pub fn finish(&self) -> Vec<u8> {
        self.finish_with(32)
    }

    /// The file, with its data at a multiple of `alignment`.
    pub fn finish_with(&self, alignment: usize) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        bytes[8..16].copy_from_slice(&self.tensors.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.keys.to_le_bytes());
        if self.tensors > 0 {
            bytes.resize(bytes.len().next_multiple_of(alignment), 0);
        }
        bytes.extend(&self.data);
        bytes
    }
}
