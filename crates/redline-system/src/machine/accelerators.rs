//! Accelerators that are visible; none of them is used.

use serde::{Deserialize, Serialize};

use super::tree::Tree;

/// Vendors of accelerators by PCI number.
const VENDORS: &[(u16, &str)] = &[(0x10de, "NVIDIA"), (0x1002, "AMD"), (0x1022, "AMD"), (0x8086, "Intel")];

/// Evidence of accelerators.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Accelerators {
    /// Devices on the PCI bus: display controllers of known vendors, and processing accelerators of any vendor.
    pub pci: Vec<PciDevice>,
    /// Device files, such as `/dev/nvidia0`.
    pub device_files: Vec<String>,
    /// The version text of the NVIDIA driver.
    pub nvidia_driver: Option<String>,
}

/// A device on the PCI bus.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PciDevice {
    /// Its address, such as `0000:01:00.0`.
    pub address: String,
    /// `display` or `processing accelerator`.
    pub class: String,
    /// The vendor's name, if known.
    pub vendor: Option<String>,
    /// The vendor's id.
    pub vendor_id: u16,
    /// The vendor's id of the device.
    pub device_id: Option<u16>,
}

impl Accelerators {
    pub(super) fn read(tree: Tree) -> Self {
        let pci = tree.names("sys/bus/pci/devices").into_iter().filter_map(|a| pci_device(tree, a)).collect();
        let mut device_files = Vec::new();
        for (directory, stem) in
            [("dev", "nvidia"), ("dev", "accel"), ("dev/accel", "accel"), ("dev/dri", "renderD")]
        {
            let names = tree.names(directory).into_iter().filter(|n| is_numbered(n, stem));
            device_files.extend(names.map(|n| format!("/{directory}/{n}")));
        }
        device_files
            .extend(tree.names("dev").into_iter().filter(|n| n == "kfd").map(|n| format!("/dev/{n}")));
        let version = tree.text("proc/driver/nvidia/version").unwrap_or_default();
        let nvidia_driver = version.lines().next().map(|line| line.trim().to_owned());
        Self { pci, device_files, nvidia_driver: nvidia_driver.filter(|line| !line.is_empty()) }
    }
}

fn is_numbered(name: &str, stem: &str) -> bool {
    name.strip_prefix(stem).is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
}

/// Reads a PCI device, if it looks like an accelerator.
fn pci_device(tree: Tree, address: String) -> Option<PciDevice> {
    let file = |name: &str| hex(&tree.word(&format!("sys/bus/pci/devices/{address}/{name}"))?);
    let vendor_id = u16::try_from(file("vendor")?).ok()?;
    let vendor = VENDORS.iter().find(|(id, _)| *id == vendor_id).map(|(_, name)| (*name).to_owned());
    let class = match file("class")? >> 16 {
        // A display controller of another vendor is a console, not an accelerator.
        0x03 if vendor.is_some() => "display",
        0x12 => "processing accelerator",
        _ => return None,
    };
    let device_id = file("device").and_then(|id| u16::try_from(id).ok());
    Some(PciDevice { class: class.to_owned(), vendor, vendor_id, device_id, address })
}

/// Reads `0x10de`.
fn hex(text: &str) -> Option<u32> {
    u32::from_str_radix(text.strip_prefix("0x")?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbered_names() {
        assert!(is_numbered("nvidia0", "nvidia") && is_numbered("renderD128", "renderD"));
        assert!(!is_numbered("nvidiactl", "nvidia") && !is_numbered("nvidia", "nvidia"));
        assert!(!is_numbered("nvidia-uvm", "nvidia") && !is_numbered("card0", "renderD"));
    }

    #[test]
    fn numbers_of_the_bus() {
        assert_eq!((hex("0x030000"), hex("0x10de")), (Some(0x03_0000), Some(0x10de)));
        assert_eq!((hex("10de"), hex("0x"), hex("0xz")), (None, None, None));
    }
}
