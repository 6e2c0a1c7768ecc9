//! An initiator of iSCSI that notes each PDU as the probe of the target is to tell it.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};

/// The name of the target, and the logical unit that it has.
pub(crate) const TARGET: &str = "iqn.2026-11.example:target";
pub(crate) const LUN: u8 = 3;
pub(crate) const PORT: u16 = 3260;

const BLOCK: usize = 512;
/// What the target may send in a PDU, and what moves in a burst.
const SEGMENT: usize = 1024;
const BURST: usize = 2048;
const NONE: u32 = 0xffff_ffff;

/// The operations, and what their probes are called.
const NAMES: [(u8, &str); 16] = [
    (0x00, "nop-receive"),
    (0x01, "scsi-command"),
    (0x02, "task-command"),
    (0x03, "login-command"),
    (0x04, "text-command"),
    (0x05, "data-receive"),
    (0x06, "logout-command"),
    (0x20, "nop-send"),
    (0x21, "scsi-response"),
    (0x22, "task-response"),
    (0x23, "login-response"),
    (0x24, "text-response"),
    (0x25, "data-send"),
    (0x26, "logout-response"),
    (0x31, "data-request"),
    (0x32, "async-send"),
];

/// The header of a PDU.
#[derive(Clone, Copy)]
pub(crate) struct Header([u8; 48]);

impl Header {
    fn new(op: u8, flags: u8) -> Self {
        let mut bytes = [0; 48];
        bytes[..2].copy_from_slice(&[op, flags]);
        Self(bytes)
    }

    fn with(mut self, at: usize, bytes: &[u8]) -> Self {
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
        self
    }

    fn number(self, at: usize, number: u32) -> Self {
        self.with(at, &number.to_be_bytes())
    }

    fn op(&self) -> u8 {
        self.0[0] & 0x3f
    }

    fn get(&self, at: usize) -> u32 {
        u32::from_be_bytes(self.0[at..at + 4].try_into().unwrap())
    }

    fn length(&self) -> usize {
        self.get(4) as usize & 0xff_ffff
    }
}

/// A connection.
pub(crate) struct Initiator {
    stream: TcpStream,
    name: String,
    isid: [u8; 6],
    /// What the target knows of whom.
    known: (&'static str, String),
    tag: u32,
    command: u32,
    status: u32,
    /// Logical unit and number of each command.
    tasks: HashMap<u32, (u8, u32)>,
    /// What the probes are to tell.
    pub(crate) told: Vec<String>,
}

/// The error of a target that answers something else.
fn other(what: &str, header: &Header) -> io::Error {
    io::Error::other(format!("{what}: {:x?}", header.0))
}

impl Initiator {
    pub(crate) fn connect(address: &str, number: u8) -> io::Result<Self> {
        let stream = TcpStream::connect((address, PORT))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(testing::HANG_LIMIT))?;
        Ok(Self {
            stream,
            name: format!("iqn.2026-11.example:initiator-{number}"),
            isid: [0x80, 0, 0, 0xa0 + number, 0, number],
            known: ("", String::new()),
            tag: 0x1000 * u32::from(number),
            command: 100 * u32::from(number),
            status: 0,
            tasks: HashMap::new(),
            told: Vec::new(),
        })
    }

    /// Notes what the probe of a PDU is to tell.
    fn note(&mut self, header: &Header) {
        let op = header.op();
        let Some((_, name)) = NAMES.iter().find(|(known, _)| *known == op) else { return };
        let tag = header.get(16);
        let of = self.tasks.get(&tag).copied().unwrap_or((0, 0));
        let address = |address: io::Result<SocketAddr>| address.unwrap().ip().to_string();
        let remote = self.stream.local_addr();
        let protocol = if remote.as_ref().unwrap().is_ipv4() { "ipv4" } else { "ipv6" };
        let has_ttt = [0, 4, 5, 0x20, 0x24, 0x25, 0x31].contains(&op);
        let isid: String = self.isid.iter().map(|byte| format!("{byte:02x}")).collect();
        let command = match op {
            0x05 => 0,
            ..0x20 => header.get(24),
            _ => of.1,
        };
        let fields = [
            (*name).to_string(),
            address(self.stream.peer_addr()),
            address(remote),
            protocol.into(),
            self.known.0.into(),
            self.known.1.clone(),
            isid,
            "sockets".into(),
            of.0.to_string(),
            format!("{tag:x}"),
            format!("{:x}", if has_ttt { header.get(20) } else { NONE }),
            command.to_string(),
            if op >= 0x20 { header.get(24) } else { 0 }.to_string(),
            if [0x05, 0x25, 0x31].contains(&op) { header.get(36) } else { 0 }.to_string(),
            if op == 0x31 { header.get(44) as usize } else { header.length() }.to_string(),
            format!("{:x}", header.0[1]),
            if op == 0x01 { hex(&header.0[32..]) } else { String::new() },
        ];
        self.told.push(fields.join("|"));
    }

    fn send(&mut self, header: Header, data: &[u8]) -> io::Result<()> {
        let header = header.number(4, u32::try_from(data.len()).unwrap());
        self.note(&header);
        let mut all = header.0.to_vec();
        all.extend(data);
        all.resize(all.len().next_multiple_of(4), 0);
        self.stream.write_all(&all)
    }

    fn receive(&mut self) -> io::Result<(Header, Vec<u8>)> {
        let mut bytes = [0; 48];
        self.stream.read_exact(&mut bytes)?;
        let header = Header(bytes);
        let mut data = vec![0; header.length().next_multiple_of(4)];
        self.stream.read_exact(&mut data)?;
        data.truncate(header.length());
        if [0x20, 0x21, 0x22, 0x24, 0x26].contains(&header.op())
            || (header.op() == 0x25 && header.0[1] & 1 != 0)
        {
            self.status = header.get(24) + 1;
        }
        self.note(&header);
        Ok((header, data))
    }

    /// The answer to a request.
    fn expect(&mut self, op: u8) -> io::Result<(Header, Vec<u8>)> {
        let (header, data) = self.receive()?;
        if header.op() == op { Ok((header, data)) } else { Err(other("an answer", &header)) }
    }

    /// A request with a tag and a number of its own, of the next command unless it is immediate.
    fn request(&mut self, op: u8, flags: u8, lun: u8) -> Header {
        self.tag += 1;
        self.tasks.insert(self.tag, (lun, self.command));
        let header = Header::new(op, flags).with(8, &[0, lun]).number(16, self.tag);
        let header = header.number(24, self.command).number(28, self.status);
        if op & 0x40 == 0 {
            self.command += 1;
        }
        header
    }

    /// Logs in: first the stage of security, then that of the operation. `Err`: the status.
    pub(crate) fn log_in(&mut self, keys: &str) -> io::Result<Result<(), u16>> {
        let first = format!("InitiatorName={}\0{keys}AuthMethod=None\0", self.name);
        let second = format!(
            "HeaderDigest=None\0DataDigest=None\0InitialR2T=Yes\0ImmediateData=Yes\0\
             MaxRecvDataSegmentLength={SEGMENT}\0MaxBurstLength={BURST}\0FirstBurstLength={SEGMENT}\0\
             MaxConnections=1\0MaxOutstandingR2T=1\0ErrorRecoveryLevel=0\0DefaultTime2Wait=2\0\
             DefaultTime2Retain=0\0DataPDUInOrder=Yes\0DataSequenceInOrder=Yes\0"
        );
        self.tag += 1;
        self.tasks.insert(self.tag, (0, self.command));
        for (flags, mut text) in [(0x81, first), (0x87, second)] {
            for round in 0.. {
                let header = Header::new(0x43, flags).with(8, &self.isid).number(16, self.tag);
                let header = header.number(24, self.command).number(28, self.status);
                self.send(header, text.as_bytes())?;
                let is_normal = keys.contains(TARGET);
                self.known = match keys.contains("Discovery") {
                    true => ("", String::new()),
                    false if is_normal => (TARGET, self.name.clone()),
                    false => ("", String::new()),
                };
                let (answer, keys) = self.expect(0x23)?;
                self.status = answer.get(24) + 1;
                if answer.0[36] != 0 {
                    return Ok(Err(u16::from_be_bytes([answer.0[36], answer.0[37]])));
                }
                if answer.0[1] & 0x83 == flags & 0x83 {
                    break;
                }
                if round == 4 {
                    return Err(other(&String::from_utf8_lossy(&keys), &answer));
                }
                text.clear();
            }
        }
        self.known.1 = self.name.clone();
        Ok(Ok(()))
    }

    /// A command that reads, or moves nothing. Returns what it has read.
    pub(crate) fn read(&mut self, command: &[u8], length: usize) -> io::Result<Vec<u8>> {
        let flags = if length > 0 { 0xc1 } else { 0x81 };
        let header =
            self.request(0x01, flags, LUN).number(20, u32::try_from(length).unwrap()).with(32, command);
        self.send(header, &[])?;
        let mut all = Vec::new();
        loop {
            let (header, data) = self.receive()?;
            all.extend(data);
            match header.op() {
                0x21 => return Ok(all),
                0x25 if header.0[1] & 1 != 0 => return Ok(all),
                0x25 => {}
                _ => return Err(other("data", &header)),
            }
        }
    }

    /// Writes blocks from the first on. So many bytes go with the command, the others when the target
    /// asks for them.
    pub(crate) fn write(&mut self, data: &[u8], immediate: usize) -> io::Result<()> {
        let blocks = u8::try_from(data.len() / BLOCK).unwrap();
        let header = self.request(0x01, 0xa1, LUN).number(20, u32::try_from(data.len()).unwrap());
        self.send(header.with(32, &[0x2a, 0, 0, 0, 0, 0, 0, 0, blocks, 0]), &data[..immediate])?;
        loop {
            let (asked, _) = self.receive()?;
            match asked.op() {
                0x21 => return Ok(()),
                0x31 => {}
                _ => return Err(other("a request for data", &asked)),
            }
            let (from, length) = (asked.get(40) as usize, asked.get(44) as usize);
            for (number, part) in data[from..from + length].chunks(SEGMENT / 2).enumerate() {
                let is_last = (number + 1) * SEGMENT / 2 >= length;
                let at = from + number * SEGMENT / 2;
                let header = Header::new(0x05, if is_last { 0x80 } else { 0 }).with(8, &[0, LUN]);
                let header =
                    header.number(16, asked.get(16)).number(20, asked.get(20)).number(28, self.status);
                let header = header.number(36, u32::try_from(number).unwrap());
                self.send(header.number(40, u32::try_from(at).unwrap()), part)?;
            }
        }
    }

    /// A question, whose answer comes if it is wanted.
    pub(crate) fn ping(&mut self, data: &[u8], is_answered: bool) -> io::Result<()> {
        let header = self.request(0x40, 0x80, 0).number(20, NONE);
        if !is_answered {
            return self.send(header.number(16, NONE), data);
        }
        self.send(header, data)?;
        self.expect(0x20).map(drop)
    }

    /// A function on tasks: 1 aborts one, 5 resets the unit.
    pub(crate) fn manage(&mut self, function: u8) -> io::Result<u8> {
        let header = self.request(0x42, 0x80 | function, LUN).number(20, NONE).number(32, self.command);
        self.send(header, &[])?;
        Ok(self.expect(0x22)?.0.0[2])
    }

    pub(crate) fn text(&mut self, text: &str) -> io::Result<String> {
        let header = self.request(0x04, 0x80, 0).number(20, NONE);
        self.send(header, text.as_bytes())?;
        Ok(String::from_utf8_lossy(&self.expect(0x24)?.1).into_owned())
    }

    /// Logs out, and waits until the target has closed the connection.
    pub(crate) fn log_out(&mut self) -> io::Result<()> {
        let header = self.request(0x06, 0x80, 0);
        self.send(header, &[])?;
        self.expect(0x26)?;
        let mut rest = Vec::new();
        self.stream.read_to_end(&mut rest).map(drop)
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Uses every PDU over IPv4 and IPv6. Prints what the probes are to tell.
pub(crate) fn works() -> io::Result<()> {
    for (number, address) in [(1, "127.0.0.1"), (2, "::1")] {
        let mut discovery = Initiator::connect(address, 10 + number)?;
        discovery.log_in("SessionType=Discovery\0")?.map_err(|e| io::Error::other(format!("{e:x}")))?;
        assert!(discovery.text("SendTargets=All\0")?.contains(TARGET));
        discovery.log_out()?;

        let mut refused = Initiator::connect(address, 20 + number)?;
        assert_eq!(refused.log_in("SessionType=Normal\0TargetName=iqn.2026-11.example:none\0")?, Err(0x301));

        let mut one = Initiator::connect(address, number)?;
        let keys = format!("SessionType=Normal\0TargetName={TARGET}\0");
        one.log_in(&keys)?.map_err(|e| io::Error::other(format!("{e:x}")))?;
        one.ping(b"hello", true)?;
        one.ping(b"", false)?;
        one.read(&[0x00], 0)?;
        assert_eq!(one.read(&[0x12, 0, 0, 0, 36], 36)?.len(), 36);
        let data: Vec<u8> = (0..8 * BLOCK).map(|n| n.to_le_bytes()[0] ^ number).collect();
        one.write(&data[..BLOCK], BLOCK)?;
        one.write(&data, BLOCK)?;
        one.write(&data, 0)?;
        assert_eq!(one.read(&[0x28, 0, 0, 0, 0, 0, 0, 0, 8], 8 * BLOCK)?, data);
        one.manage(1)?;
        assert_eq!(one.manage(5)?, 0);
        one.text(&format!("SendTargets={TARGET}\0"))?;
        one.log_out()?;
        for told in [&discovery, &refused, &one].iter().flat_map(|i| &i.told) {
            println!("told {told}");
        }
    }
    Ok(())
}
