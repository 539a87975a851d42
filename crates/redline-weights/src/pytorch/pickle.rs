//! The pickle operations that describe a state dict, on values without behaviour.
//!
//! The machine stores every value once and refers to it by number, so that neither nesting nor repetition can make
//! its memory grow beyond the pickle's own length.

use std::collections::BTreeMap;

use super::fault::PytorchFault;
use crate::dtype::StoredDtype;
use crate::header::MAX_RANK;

/// Maximum number of values created, on the stack, or memoized; a tensor needs about 25.
const MAX_VALUES: usize = 1 << 20;
/// Maximum number of open marks; a state dict needs three.
const MAX_MARKS: usize = 64;
/// Maximum bytes of a global's module or name, or of a storage's key.
const MAX_NAME: usize = 128;

/// Storage types by name, with their element types.
const STORAGES: [(&str, StoredDtype); 11] = [
    ("FloatStorage", StoredDtype::F32),
    ("HalfStorage", StoredDtype::F16),
    ("BFloat16Storage", StoredDtype::BF16),
    ("DoubleStorage", StoredDtype::F64),
    ("LongStorage", StoredDtype::I64),
    ("IntStorage", StoredDtype::I32),
    ("ShortStorage", StoredDtype::I16),
    ("CharStorage", StoredDtype::I8),
    ("ByteStorage", StoredDtype::U8),
    ("BoolStorage", StoredDtype::Bool),
    ("ComplexFloatStorage", StoredDtype::C64),
];

/// A tensor as described by the pickle, not yet checked against the archive.
pub(super) struct Tensor<'a> {
    pub(super) storage: Storage<'a>,
    /// Offset of its first element in the storage.
    pub(super) offset: u64,
    pub(super) shape: Vec<usize>,
    pub(super) strides: Vec<usize>,
}

/// A sequence of elements that tensors share.
#[derive(Clone, Copy)]
pub(super) struct Storage<'a> {
    /// `None` for an unknown type.
    pub(super) dtype: Option<StoredDtype>,
    pub(super) type_name: &'a str,
    /// The archive entry is `data/<key>`.
    pub(super) key: &'a str,
    pub(super) elements: u64,
}

/// Index of a value in [`Machine::values`].
type Id = usize;

enum Value<'a> {
    Nothing,
    Bool,
    Int(i64),
    Text(&'a str),
    Tuple(Vec<Id>),
    Dict(Vec<(Id, Id)>),
    Callable(Callable),
    StorageType(&'a str),
    Storage(Storage<'a>),
    /// Storage, offset, shape and strides, as written in the pickle.
    Tensor([Id; 4]),
}

#[derive(Clone, Copy)]
enum Callable {
    OrderedDict,
    RebuildTensor,
    RebuildParameter,
}

/// Reads the tensors of the state dict by name.
pub(super) fn state_dict(pickle: &[u8]) -> Result<BTreeMap<&str, Tensor<'_>>, PytorchFault> {
    let mut machine = Machine { pickle, ..Machine::default() };
    let result = machine.run()?;
    let Value::Dict(items) = &machine.values[result] else {
        return Err(PytorchFault::NotStateDict { found: machine.values[result].kind() });
    };
    let mut tensors = BTreeMap::new();
    for &(key, value) in items {
        let Value::Text(name) = machine.values[key] else {
            return Err(PytorchFault::NotStateDict { found: "a dict with keys that are no text" });
        };
        if tensors.insert(name, machine.tensor(name, value)?).is_some() {
            return Err(PytorchFault::Twice { name: name.to_owned() });
        }
    }
    Ok(tensors)
}

#[derive(Default)]
struct Machine<'a> {
    pickle: &'a [u8],
    /// Offsets of the next byte to read, and of the current operation.
    at: usize,
    operation: usize,
    values: Vec<Value<'a>>,
    stack: Vec<Id>,
    marks: Vec<usize>,
    memo: BTreeMap<u32, Id>,
}

impl<'a> Machine<'a> {
    fn run(&mut self) -> Result<Id, PytorchFault> {
        loop {
            self.operation = self.at;
            let code = self.byte()?;
            match code {
                0x80 => match self.byte()? {
                    2 => {}
                    found => return Err(PytorchFault::Protocol { found }),
                },
                b'.' => {
                    let result = self.pop()?;
                    let more = self.at < self.pickle.len();
                    return if more { Err(PytorchFault::PickleTrailing { at: self.at }) } else { Ok(result) };
                }
                b'(' => {
                    if self.marks.len() == MAX_MARKS {
                        return Err(self.bound("marks", MAX_MARKS));
                    }
                    self.marks.push(self.stack.len());
                }
                b'N' => self.push(Value::Nothing)?,
                0x88 | 0x89 => self.push(Value::Bool)?,
                b'K' => self.integer(1, false)?,
                b'M' => self.integer(2, false)?,
                b'J' => self.integer(4, true)?,
                0x8a => {
                    let length = self.byte()?;
                    self.integer(length.into(), true)?;
                }
                b'X' => {
                    let length = u32::from_le_bytes(self.array()?);
                    let text = self.take(length as usize)?;
                    let text = str::from_utf8(text).map_err(|_| self.operand("UTF-8"))?;
                    self.push(Value::Text(text))?;
                }
                b')' => self.push(Value::Tuple(Vec::new()))?,
                0x85..=0x87 => self.tuple(usize::from(code - 0x84))?,
                b't' => {
                    let items = self.since_mark()?;
                    self.push(Value::Tuple(items))?;
                }
                b'}' => self.push(Value::Dict(Vec::new()))?,
                b's' => {
                    let (value, key) = (self.pop()?, self.pop()?);
                    self.set_items(&[key, value])?;
                }
                b'u' => {
                    let items = self.since_mark()?;
                    self.set_items(&items)?;
                }
                b'q' | b'r' => {
                    let key = self.memo_key(code == b'r')?;
                    let value = self.top()?;
                    self.memo.insert(key, value);
                    if self.memo.len() > MAX_VALUES {
                        return Err(self.bound("values remembered", MAX_VALUES));
                    }
                }
                b'h' | b'j' => {
                    let key = self.memo_key(code == b'j')?;
                    let value = self.memo.get(&key).copied();
                    let value = value.ok_or_else(|| self.operand("a value remembered before"))?;
                    self.push_id(value)?;
                }
                b'c' => self.global()?,
                b'R' => self.reduce()?,
                b'b' => self.build()?,
                b'Q' => self.storage()?,
                code => return Err(PytorchFault::Operation { code, at: self.operation }),
            }
        }
    }

    /// Converts `value` to the tensor that the state dict calls `name`.
    fn tensor(&self, name: &str, value: Id) -> Result<Tensor<'a>, PytorchFault> {
        let Value::Tensor([storage, offset, shape, strides]) = self.values[value] else {
            let found = self.values[value].kind();
            return Err(PytorchFault::NotTensor { name: name.to_owned(), found });
        };
        let whole =
            || PytorchFault::NotTensor { name: name.to_owned(), found: "a tensor without whole sizes" };
        let Value::Storage(storage) = self.values[storage] else { return Err(whole()) };
        let offset = self.size(offset).ok_or_else(whole)?;
        let sizes = |id: Id| match &self.values[id] {
            Value::Tuple(items) if items.len() > MAX_RANK => {
                let (tensor, found) = (name.to_owned(), items.len());
                Err(PytorchFault::Rank { tensor, found, limit: MAX_RANK })
            }
            Value::Tuple(items) => items.iter().map(|&item| self.size(item).ok_or_else(whole)).collect(),
            _ => Err(whole()),
        };
        Ok(Tensor { storage, offset: offset as u64, shape: sizes(shape)?, strides: sizes(strides)? })
    }

    fn size(&self, id: Id) -> Option<usize> {
        if let Value::Int(value) = self.values[id] { usize::try_from(value).ok() } else { None }
    }

    /// Reads a little-endian integer of `length` bytes.
    fn integer(&mut self, length: usize, signed: bool) -> Result<(), PytorchFault> {
        let bytes = self.take(length)?;
        if length > 8 {
            return Err(self.operand("an integer of at most 64 bits"));
        }
        let negative = signed && bytes.last().is_some_and(|byte| byte & 0x80 != 0);
        let mut wide = [if negative { 0xff } else { 0 }; 8];
        wide[..length].copy_from_slice(bytes);
        self.push(Value::Int(i64::from_le_bytes(wide)))
    }

    fn tuple(&mut self, length: usize) -> Result<(), PytorchFault> {
        let from = self.stack.len().checked_sub(length).filter(|&from| from >= self.floor());
        let from = from.ok_or_else(|| self.operand("a value on the stack"))?;
        let items = self.stack.split_off(from);
        self.push(Value::Tuple(items))
    }

    /// Inserts alternating keys and values into the dict on the stack.
    fn set_items(&mut self, items: &[Id]) -> Result<(), PytorchFault> {
        let dict = self.top()?;
        let (pairs, rest) = items.as_chunks::<2>();
        let fault = self.operand("a dict, and keys with values");
        match &mut self.values[dict] {
            Value::Dict(held) if rest.is_empty() => {
                held.extend(pairs.iter().map(|&[key, value]| (key, value)));
                Ok(())
            }
            _ => Err(fault),
        }
    }

    fn memo_key(&mut self, long: bool) -> Result<u32, PytorchFault> {
        if long { Ok(u32::from_le_bytes(self.array()?)) } else { Ok(self.byte()?.into()) }
    }

    /// Reads a module and a name, one line each.
    fn global(&mut self) -> Result<(), PytorchFault> {
        let (module, name) = (self.line()?, self.line()?);
        let value = match (module, name) {
            ("collections", "OrderedDict") => Value::Callable(Callable::OrderedDict),
            ("torch._utils", "_rebuild_tensor_v2") => Value::Callable(Callable::RebuildTensor),
            ("torch._utils", "_rebuild_parameter") => Value::Callable(Callable::RebuildParameter),
            ("torch", name) if name.ends_with("Storage") => Value::StorageType(name),
            _ => return Err(PytorchFault::Global { name: format!("{module}.{name}") }),
        };
        self.push(value)
    }

    /// Calls one of the three callables; each only creates a value.
    fn reduce(&mut self) -> Result<(), PytorchFault> {
        let (arguments, callable) = (self.pop()?, self.pop()?);
        let (Value::Callable(callable), Value::Tuple(arguments)) =
            (&self.values[callable], &self.values[arguments])
        else {
            return Err(self.operand("a function and a tuple of arguments"));
        };
        let kind = |id: &Id| &self.values[*id];
        match (callable, &arguments[..]) {
            (Callable::OrderedDict, []) => self.push(Value::Dict(Vec::new())),
            // Storage, offset, shape, strides, requires_grad, hooks, and in newer files metadata.
            (Callable::RebuildTensor, &[storage, offset, shape, strides, _, _, ..])
                if arguments.len() <= 7 && matches!(kind(&storage), Value::Storage(_)) =>
            {
                self.push(Value::Tensor([storage, offset, shape, strides]))
            }
            (Callable::RebuildParameter, &[tensor, _, _]) if matches!(kind(&tensor), Value::Tensor(_)) => {
                self.push_id(tensor)
            }
            _ => Err(self.operand("the arguments that `torch.save` writes")),
        }
    }

    /// Attributes of a dict (`_metadata`) are dropped.
    fn build(&mut self) -> Result<(), PytorchFault> {
        let (state, object) = (self.pop()?, self.top()?);
        match (&self.values[object], &self.values[state]) {
            (Value::Dict(_), Value::Dict(_)) => Ok(()),
            _ => Err(self.operand("a dict and a dict of its attributes")),
        }
    }

    /// Creates a storage from the tuple `("storage", type, key, device, elements)`.
    fn storage(&mut self) -> Result<(), PytorchFault> {
        let tuple = self.pop()?;
        let described = match &self.values[tuple] {
            Value::Tuple(items) => match items[..] {
                [word, kind, key, device, elements] => Some([word, kind, key, device, elements]),
                _ => None,
            },
            _ => None,
        };
        let values = described.map(|items| items.map(|item| &self.values[item]));
        let Some(
            [
                Value::Text("storage"),
                Value::StorageType(type_name),
                Value::Text(key),
                _,
                Value::Int(elements),
            ],
        ) = values
        else {
            return Err(self.operand("the description of a storage"));
        };
        if key.len() > MAX_NAME {
            return Err(self.operand("a short key of a storage"));
        }
        let elements = u64::try_from(*elements).map_err(|_| self.operand("a number of elements"))?;
        let dtype = STORAGES.iter().find(|(name, _)| name == type_name).map(|&(_, dtype)| dtype);
        self.push(Value::Storage(Storage { dtype, type_name, key, elements }))
    }

    fn push(&mut self, value: Value<'a>) -> Result<(), PytorchFault> {
        if self.values.len() == MAX_VALUES {
            return Err(self.bound("values", MAX_VALUES));
        }
        self.values.push(value);
        self.push_id(self.values.len() - 1)
    }

    fn push_id(&mut self, id: Id) -> Result<(), PytorchFault> {
        if self.stack.len() == MAX_VALUES {
            return Err(self.bound("values on the stack", MAX_VALUES));
        }
        self.stack.push(id);
        Ok(())
    }

    /// The stack height of the innermost mark; values below it belong to an outer mark.
    fn floor(&self) -> usize {
        self.marks.last().copied().unwrap_or(0)
    }

    fn top(&self) -> Result<Id, PytorchFault> {
        let there = self.stack.len() > self.floor();
        self.stack.last().copied().filter(|_| there).ok_or_else(|| self.operand("a value on the stack"))
    }

    fn pop(&mut self) -> Result<Id, PytorchFault> {
        let top = self.top()?;
        self.stack.pop();
        Ok(top)
    }

    fn since_mark(&mut self) -> Result<Vec<Id>, PytorchFault> {
        let mark = self.marks.pop().ok_or_else(|| self.operand("a mark on the stack"))?;
        Ok(self.stack.split_off(mark))
    }

    fn byte(&mut self) -> Result<u8, PytorchFault> {
        self.array().map(|[byte]| byte)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], PytorchFault> {
        let bytes = self.take(N)?;
        Ok(std::array::from_fn(|nth| bytes[nth]))
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], PytorchFault> {
        let rest = &self.pickle[self.at..];
        let taken = rest.get(..length).ok_or(PytorchFault::PickleEnd { at: self.pickle.len() })?;
        self.at += length;
        Ok(taken)
    }

    fn line(&mut self) -> Result<&'a str, PytorchFault> {
        let rest = &self.pickle[self.at..];
        let length = rest.iter().take(MAX_NAME).position(|&byte| byte == b'\n');
        let length = length.ok_or_else(|| self.operand("a line with a short name"))?;
        self.at += length + 1;
        str::from_utf8(&rest[..length]).map_err(|_| self.operand("UTF-8"))
    }

    fn operand(&self, needed: &'static str) -> PytorchFault {
        PytorchFault::Operand { at: self.operation, needed }
    }

    fn bound(&self, what: &'static str, limit: usize) -> PytorchFault {
        PytorchFault::Bound { what, limit, at: self.operation }
    }
}

impl Value<'_> {
    fn kind(&self) -> &'static str {
        match self {
            Self::Nothing => "None",
            Self::Bool => "a truth value",
            Self::Int(_) => "a number",
            Self::Text(_) => "a text",
            Self::Tuple(_) => "a tuple",
            Self::Dict(_) => "a dict",
            Self::Callable(_) => "a function",
            Self::StorageType(_) => "a type of storage",
            Self::Storage(_) => "a storage",
            Self::Tensor(_) => "a tensor",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Operations and their results (Python's `pickletools`): BININT1 and BININT2 are unsigned, BININT and LONG1 are
    /// signed.
    #[test]
    fn integers_have_the_signs_of_their_operations() {
        let cases: [(&[u8], i64); 8] = [
            (b"K\xff", 255),
            (b"M\x51\xc4", 50_257),
            (b"M\xff\xff", 65_535),
            (b"J\x00\x00\x01\x00", 65_536),
            (b"J\xff\xff\xff\xff", -1),
            (b"\x8a\x01\xff", -1),
            (b"\x8a\x02\xff\x00", 255),
            (b"\x8a\x00", 0),
        ];
        for (operation, expect) in cases {
            let pickle = [b"\x80\x02", operation, b"."].concat();
            let mut machine = Machine { pickle: &pickle, ..Machine::default() };
            let result = machine.run().unwrap();
            let Value::Int(found) = machine.values[result] else { panic!("{operation:?} leaves no integer") };
            assert_eq!(found, expect, "{operation:?}");
        }
    }

    fn text(text: &str) -> Vec<u8> {
        [b"X".to_vec(), (text.len() as u32).to_le_bytes().to_vec(), text.into()].concat()
    }

    fn number(number: u8) -> Vec<u8> {
        vec![b'K', number]
    }

    fn tuple(items: &[Vec<u8>]) -> Vec<u8> {
        [b"(".to_vec(), items.concat(), b"t".to_vec()].concat()
    }

    fn global(module: &str, name: &str) -> Vec<u8> {
        format!("c{module}\n{name}\n").into_bytes()
    }

    /// A state dict whose only tensor `w` has one element in this type of storage, this many dimensions, and these arguments
    /// after its strides.
    fn state(storage: &str, dimensions: usize, more: &[u8]) -> Vec<u8> {
        let storage = tuple(&[text("storage"), global("torch", storage), text("0"), text("cpu"), number(1)]);
        let sizes = tuple(&vec![number(1); dimensions]);
        let arguments = [storage, b"Q".to_vec(), number(0), sizes.clone(), sizes, more.to_vec()];
        let rebuild = global("torch._utils", "_rebuild_tensor_v2");
        let items = [text("w"), rebuild, tuple(&arguments), b"Rs.".to_vec()];
        [b"\x80\x02}".to_vec(), items.concat()].concat()
    }

    /// `requires_grad` and hooks.
    const PLAIN: &[u8] = b"\x89N";

    #[test]
    fn a_single_tensor_is_listed_without_a_mark() {
        let pickle = state("FloatStorage", 1, PLAIN);
        let tensors = state_dict(&pickle).unwrap();
        assert_eq!(tensors.keys().collect::<Vec<_>>(), [&"w"]);
        let Tensor { storage, offset, shape, strides } = &tensors["w"];
        assert_eq!((storage.key, storage.elements, *offset), ("0", 1, 0));
        assert_eq!((&shape[..], &strides[..]), (&[1][..], &[1][..]));
    }

    #[test]
    fn values_are_remembered_under_long_numbers_too() {
        // BINPUT and LONG_BINPUT, BINGET and LONG_BINGET differ in the length of their numbers only.
        for (pickle, expect) in [
            (&b"\x80\x02K\x07r\x2c\x01\0\0K\x08q\x2cj\x2c\x01\0\0."[..], 7),
            (b"\x80\x02K\x07r\x2c\x01\0\0K\x08q\x2ch\x2c.", 8),
            (b"\x80\x02K\x07q\x2cK\x08r\x2c\x01\0\0j\x2c\0\0\0.", 7),
        ] {
            let mut machine = Machine { pickle, ..Machine::default() };
            let result = machine.run().unwrap();
            assert!(matches!(machine.values[result], Value::Int(found) if found == expect), "{pickle:?}");
        }
    }

    #[test]
    fn a_tensor_has_at_most_eight_dimensions() {
        let eight = state("FloatStorage", 8, PLAIN);
        assert_eq!(state_dict(&eight).unwrap()["w"].shape, [1; 8]);
        let nine = state("FloatStorage", 9, PLAIN);
        let expect = PytorchFault::Rank { tensor: "w".into(), found: 9, limit: 8 };
        assert_eq!(state_dict(&nine).err(), Some(expect));
    }

    #[test]
    fn a_tensor_may_have_metadata() {
        for (more, accepted) in
            [(&b"\x89"[..], false), (b"\x89N", true), (b"\x89NN", true), (b"\x89NNN", false)]
        {
            let pickle = state("FloatStorage", 1, more);
            assert_eq!(state_dict(&pickle).is_ok(), accepted, "{more:?}");
        }
    }

    #[test]
    fn storages_have_the_types_of_their_names() {
        for (name, dtype) in [
            ("FloatStorage", Some(StoredDtype::F32)),
            ("HalfStorage", Some(StoredDtype::F16)),
            ("BFloat16Storage", Some(StoredDtype::BF16)),
            ("DoubleStorage", Some(StoredDtype::F64)),
            ("LongStorage", Some(StoredDtype::I64)),
            ("IntStorage", Some(StoredDtype::I32)),
            ("ShortStorage", Some(StoredDtype::I16)),
            ("CharStorage", Some(StoredDtype::I8)),
            ("ByteStorage", Some(StoredDtype::U8)),
            ("BoolStorage", Some(StoredDtype::Bool)),
            ("ComplexFloatStorage", Some(StoredDtype::C64)),
            ("QUInt8Storage", None),
        ] {
            let pickle = state(name, 1, PLAIN);
            let storage = state_dict(&pickle).unwrap()["w"].storage;
            assert_eq!((storage.dtype, storage.type_name), (dtype, name));
        }
    }
}
