//! Identifies the processor from `/proc/cpuinfo`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The processor.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cpu {
    /// `AuthenticAMD`, `GenuineIntel`, or the name of an ARM implementer.
    pub vendor: Option<String>,
    /// The marketing name; on ARM the name of the core, several joined by ` + `.
    pub model_name: Option<String>,
    /// The name of the core design, if the numbers below are known.
    pub microarchitecture: Option<String>,
    /// The family number (x86).
    pub family: Option<u32>,
    /// The model number; on ARM the part number of the first core.
    pub model: Option<u32>,
    /// The stepping; on ARM the revision.
    pub stepping: Option<u32>,
    /// The microcode revision.
    pub microcode: Option<String>,
}

/// The content of `/proc/cpuinfo`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct CpuInfo {
    pub(super) cpu: Cpu,
    /// Whether the processor reports a hypervisor (x86 only).
    pub(super) hypervisor: Option<bool>,
    /// Package and core by processor number, if known.
    pub(super) processors: BTreeMap<usize, Option<(usize, usize)>>,
}

/// Parses `/proc/cpuinfo` of any architecture.
pub(super) fn parse(text: &str) -> CpuInfo {
    let blocks: Vec<Vec<(&str, &str)>> = text.split("\n\n").map(pairs).collect();
    let processors = blocks.iter().filter_map(|b| processor(b)).collect();
    // ARM kernels before 3.8 and some vendors name the cores only once, after the list of processors.
    let lines: Vec<(&str, &str)> = blocks.concat();
    let hypervisor = value(&lines, "flags").map(|flags| flags.split(' ').any(|f| f == "hypervisor"));
    let cpu = if value(&lines, "CPU implementer").is_some() { arm(&lines) } else { x86(&lines) };
    CpuInfo { cpu, hypervisor, processors }
}

/// The `key : value` lines of a block, without empty values.
fn pairs(block: &str) -> Vec<(&str, &str)> {
    let lines = block.lines().filter_map(|line| line.split_once(':'));
    let pairs = lines.map(|(key, value)| (key.trim(), value.trim()));
    pairs.filter(|(_, value)| !value.is_empty()).collect()
}

/// The first value for a key.
fn value<'a>(lines: &[(&'a str, &'a str)], key: &str) -> Option<&'a str> {
    lines.iter().find(|(k, _)| *k == key).map(|(_, v)| *v)
}

/// The number, package and core of the processor in a block.
fn processor(block: &[(&str, &str)]) -> Option<(usize, Option<(usize, usize)>)> {
    let number = |key| value(block, key).and_then(|v| v.parse::<usize>().ok());
    Some((number("processor")?, number("physical id").zip(number("core id"))))
}

/// A number with or without `0x`.
fn number(text: &str) -> Option<u32> {
    match text.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

fn x86(lines: &[(&str, &str)]) -> Cpu {
    let text = |key| value(lines, key).map(ToOwned::to_owned);
    let get = |key| value(lines, key).and_then(number);
    let (family, model, stepping) = (get("cpu family"), get("model"), get("stepping"));
    let known = |vendor| x86_core(vendor, family?, model?, stepping.unwrap_or(0)).map(ToOwned::to_owned);
    Cpu {
        vendor: text("vendor_id"),
        model_name: text("model name"),
        microarchitecture: value(lines, "vendor_id").and_then(known),
        family,
        model,
        stepping,
        microcode: text("microcode"),
    }
}

/// The core design for x86 numbers, as in the Linux kernel's own tables.
fn x86_core(vendor: &str, family: u32, model: u32, stepping: u32) -> Option<&'static str> {
    Some(match (vendor, family, model) {
        ("AuthenticAMD", 0x17, 0x00..=0x2f | 0x50..=0x5f) => "Zen",
        ("AuthenticAMD", 0x17, 0x30..=0x4f | 0x60..=0x7f | 0x90..=0x91 | 0xa0..=0xaf) => "Zen 2",
        ("AuthenticAMD", 0x19, 0x00..=0x0f | 0x20..=0x5f) => "Zen 3",
        ("AuthenticAMD", 0x19, 0x10..=0x1f | 0x60..=0xaf) => "Zen 4",
        ("AuthenticAMD", 0x1a, 0x00..=0x2f | 0x40..=0x4f | 0x60..=0x7f) => "Zen 5",
        ("GenuineIntel", 6, 0x3c | 0x3f | 0x45 | 0x46) => "Haswell",
        ("GenuineIntel", 6, 0x3d | 0x47 | 0x4f | 0x56) => "Broadwell",
        ("GenuineIntel", 6, 0x55) if stepping >= 10 => "Cooper Lake",
        ("GenuineIntel", 6, 0x55) if stepping >= 5 => "Cascade Lake",
        ("GenuineIntel", 6, 0x4e | 0x5e | 0x55) => "Skylake",
        ("GenuineIntel", 6, 0x8e | 0x9e) => "Kaby Lake",
        ("GenuineIntel", 6, 0xa5 | 0xa6) => "Comet Lake",
        ("GenuineIntel", 6, 0x6a | 0x6c | 0x7d | 0x7e) => "Ice Lake",
        ("GenuineIntel", 6, 0x8c | 0x8d) => "Tiger Lake",
        ("GenuineIntel", 6, 0xa7) => "Rocket Lake",
        ("GenuineIntel", 6, 0x97 | 0x9a) => "Alder Lake",
        ("GenuineIntel", 6, 0xb7 | 0xba | 0xbf) => "Raptor Lake",
        ("GenuineIntel", 6, 0xaa | 0xac) => "Meteor Lake",
        ("GenuineIntel", 6, 0xc5 | 0xc6) => "Arrow Lake",
        ("GenuineIntel", 6, 0xbd) => "Lunar Lake",
        ("GenuineIntel", 6, 0x8f) => "Sapphire Rapids",
        ("GenuineIntel", 6, 0xcf) => "Emerald Rapids",
        ("GenuineIntel", 6, 0xad | 0xae) => "Granite Rapids",
        ("GenuineIntel", 6, 0xaf) => "Sierra Forest",
        _ => return None,
    })
}

fn arm(lines: &[(&str, &str)]) -> Cpu {
    let get = |key| value(lines, key).and_then(number);
    let implementer = get("CPU implementer");
    let mut parts: Vec<u32> = Vec::new();
    for part in lines.iter().filter(|(k, _)| *k == "CPU part").filter_map(|(_, v)| number(v)) {
        if !parts.contains(&part) {
            parts.push(part);
        }
    }
    let names: Option<Vec<&str>> = parts.iter().map(|&part| arm_core(implementer?, part)).collect();
    let names = names.filter(|names| !names.is_empty()).map(|names| names.join(" + "));
    let vendor = |i| arm_vendor(i).map_or_else(|| format!("implementer {i:#04x}"), ToOwned::to_owned);
    Cpu {
        vendor: implementer.map(vendor),
        model_name: names.or_else(|| value(lines, "model name").map(ToOwned::to_owned)),
        model: parts.first().copied(),
        stepping: get("CPU revision"),
        ..Cpu::default()
    }
}

fn arm_vendor(implementer: u32) -> Option<&'static str> {
    Some(match implementer {
        0x41 => "ARM",
        0x43 => "Cavium",
        0x46 => "Fujitsu",
        0x48 => "HiSilicon",
        0x4e => "NVIDIA",
        0x51 => "Qualcomm",
        0x61 => "Apple",
        0x6d => "Microsoft",
        0xc0 => "Ampere",
        _ => return None,
    })
}

fn arm_core(implementer: u32, part: u32) -> Option<&'static str> {
    Some(match (implementer, part) {
        (0x41, 0xd03) => "Cortex-A53",
        (0x41, 0xd05) => "Cortex-A55",
        (0x41, 0xd07) => "Cortex-A57",
        (0x41, 0xd08) => "Cortex-A72",
        (0x41, 0xd0b) => "Cortex-A76",
        (0x41, 0xd0c) => "Neoverse-N1",
        (0x41, 0xd40) => "Neoverse-V1",
        (0x41, 0xd49) => "Neoverse-N2",
        (0x41, 0xd4f) => "Neoverse-V2",
        (0x41, 0xd84) => "Neoverse-V3",
        (0x41, 0xd8e) => "Neoverse-N3",
        (0x46, 0x001) => "A64FX",
        (0xc0, 0xac3) => "Ampere-1",
        (0xc0, 0xac4) => "Ampere-1a",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_invented() {
        for text in
            ["", "\n\n\n", ":", "processor", "processor : x", "model : -1\nflags :", "a\n:b:c\n\n::\n"]
        {
            let info = parse(text);
            assert_eq!(info, CpuInfo::default(), "{text:?}");
        }
    }

    #[test]
    fn keys_are_whole_words() {
        let cpu = parse("processor : 3\nmodel name : X 1: y\nmodel\t: 7\n").cpu;
        assert_eq!((cpu.model_name.as_deref(), cpu.model), (Some("X 1: y"), Some(7)));
    }

    #[test]
    fn numbers_name_the_core_design() {
        let core = |vendor: &str, family, model, stepping| x86_core(vendor, family, model, stepping);
        assert_eq!(core("AuthenticAMD", 25, 17, 1), Some("Zen 4"));
        assert_eq!(core("AuthenticAMD", 25, 1, 1), Some("Zen 3"));
        assert_eq!(core("GenuineIntel", 6, 85, 4), Some("Skylake"));
        assert_eq!(core("GenuineIntel", 6, 85, 7), Some("Cascade Lake"));
        assert_eq!(core("GenuineIntel", 6, 143, 8), Some("Sapphire Rapids"));
        assert_eq!(core("GenuineIntel", 25, 17, 1), None);
        assert_eq!(core("AuthenticAMD", 25, 0xff, 1), None);
    }

    #[test]
    fn a_hypervisor_is_a_flag_of_its_own() {
        assert_eq!(parse("flags : fpu hypervisor sse").hypervisor, Some(true));
        assert_eq!(parse("flags : fpu hypervisors sse").hypervisor, Some(false));
        assert_eq!(parse("Features : fp asimd").hypervisor, None);
    }

    #[test]
    fn mixed_arm_cores_are_all_named() {
        let text = "processor : 0\nCPU implementer : 0x41\nCPU part : 0xd03\nCPU revision : 4\n\n\
                    processor : 1\nCPU implementer : 0x41\nCPU part : 0xd08\n";
        let cpu = parse(text).cpu;
        assert_eq!(cpu.model_name.as_deref(), Some("Cortex-A53 + Cortex-A72"));
        assert_eq!((cpu.vendor.as_deref(), cpu.model, cpu.stepping), (Some("ARM"), Some(0xd03), Some(4)));
        let unknown = parse("CPU implementer : 0x99\nCPU part : 0x123\n").cpu;
        assert_eq!((unknown.vendor.as_deref(), unknown.model_name), (Some("implementer 0x99"), None));
    }

    #[test]
    fn steppings_tell_designs_with_the_same_numbers_apart() {
        let cores = [4, 5, 9, 10, 11].map(|stepping| x86_core("GenuineIntel", 6, 0x55, stepping).unwrap());
        assert_eq!(cores, ["Skylake", "Cascade Lake", "Cascade Lake", "Cooper Lake", "Cooper Lake"]);
    }

    #[test]
    fn cores_are_not_named_after_the_known_ones_among_them() {
        let text = "processor : 0\nCPU implementer : 0x41\nCPU part : 0xd03\n\n\
                    processor : 1\nCPU implementer : 0x41\nCPU part : 0x123\n";
        let cpu = parse(text).cpu;
        assert_eq!((cpu.model_name, cpu.model), (None, Some(0xd03)));
    }
}
