/*
 * The target of iSCSI (LIO): each PDU that it receives, when its header is there, and each that it sends. Received ones
 * pass a function for their kind, sent ones all pass one. Structs of the module are named in expressions only, so that
 * a script without them compiles where it is not loaded.
 */

/* A member that a PDU does not have is 0, a tag 0xffffffff, a name "". */
typedef struct iscsiinfo {
	string ii_target;		/* name of the target, when the initiator has named it */
	string ii_initiator;		/* name of the initiator, when it is known */
	string ii_isid;			/* the initiator's identifier of the session: 12 hexadecimal digits */
	string ii_tsih;			/* the target's handle of the session */
	string ii_transport;		/* "sockets" or "iser-ib" */
	uint64_t ii_lun;		/* logical unit; that of its command in what answers one */
	uint32_t ii_itt;		/* initiator task tag */
	uint32_t ii_ttt;		/* target transfer tag */
	uint32_t ii_cmdsn;		/* sequence number of the command; in what answers one, of that one */
	uint32_t ii_statsn;		/* what is sent: sequence number of the status */
	uint32_t ii_datasn;		/* data-*: sequence number of the data, or of the request for it */
	uint32_t ii_datalen;		/* bytes of data in the PDU; data-request: bytes that are wanted */
	uint32_t ii_flags;		/* second byte of the PDU: ISCSI_FLAG_*, a code, or both */
} iscsiinfo_t;

typedef struct scsicmd {
	uint64_t ic_len;		/* bytes of the command that are in the PDU */
	uint8_t *ic_cdb;		/* the command (CDB) */
} scsicmd_t;

inline int ISCSI_FLAG_FINAL = 0x80;

/* A PDU. The address of its command (struct iscsit_cmd) is known in what answers one. */
struct _iscsi_pdu {
	uintptr_t conn;
	uintptr_t cmd;
	uintptr_t header;
};

inline struct iscsit_conn *_iscsi_conn[struct _iscsi_pdu *P] = (struct iscsit_conn *)P->conn;
inline struct iscsit_cmd *_iscsi_cmd[struct _iscsi_pdu *P] = (struct iscsit_cmd *)P->cmd;
inline uint8_t _iscsi_8[struct _iscsi_pdu *P, int AT] = *(uint8_t *)(P->header + AT);
inline uint32_t _iscsi_16[struct _iscsi_pdu *P, int AT] = ntohs(*(uint16_t *)(P->header + AT));
inline uint32_t _iscsi_32[struct _iscsi_pdu *P, int AT] = ntohl(*(uint32_t *)(P->header + AT));
inline int _iscsi_op[struct _iscsi_pdu *P] = _iscsi_8[P, 0] & 0x3f;

/* Operations: 0 NOP-out, 3 login, 5 data-out, 6 logout; of the target 0x20 NOP-in, 0x23 login, 0x25 data-in. */
inline int _iscsi_has_lun[int OP] = OP < 0x10 && OP != 3 && OP != 6;
inline int _iscsi_has_task[int OP] = OP == 0x21 || OP == 0x22 || OP == 0x25 || OP == 0x31;
inline int _iscsi_has_ttt[int OP] = OP == 0 || OP == 4 || OP == 5 || OP == 0x20 || OP == 0x24 ||
    OP == 0x25 || OP == 0x31;

inline struct iscsit_session *_iscsi_session[struct _iscsi_pdu *P] = _iscsi_conn[P]->sess;
/* The operations of a session have the name when it is there, its access list from the first request on. */
inline struct se_node_acl *_iscsi_acl[struct iscsit_session *S] =
    S == NULL || S->se_sess == NULL ? (struct se_node_acl *)NULL : S->se_sess->se_node_acl;
inline int _iscsi_is_there[struct iscsit_session *S] = S != NULL && S->sess_ops != NULL &&
    S->sess_ops->InitiatorName[0];
/* Without a session, it is the first request for one. */
inline uintptr_t _iscsi_isid[struct _iscsi_pdu *P] = _iscsi_session[P] == NULL ? P->header + 8 :
    (uintptr_t)&_iscsi_session[P]->isid;

translator conninfo_t < struct _iscsi_pdu *P > {
	ci_local = _address[(uintptr_t)&_iscsi_conn[P]->local_sockaddr];
	ci_remote = _address[(uintptr_t)&_iscsi_conn[P]->login_sockaddr];
	ci_protocol = _address_protocol[(uintptr_t)&_iscsi_conn[P]->login_sockaddr];
};

translator iscsiinfo_t < struct _iscsi_pdu *P > {
	ii_target = _iscsi_conn[P]->tpg == NULL || _iscsi_conn[P]->tpg->tpg_tiqn == NULL ? "" :
	    stringof((char *)&_iscsi_conn[P]->tpg->tpg_tiqn->tiqn);
	ii_initiator = _iscsi_is_there[_iscsi_session[P]] ?
	    stringof((char *)&_iscsi_session[P]->sess_ops->InitiatorName) :
	    _iscsi_acl[_iscsi_session[P]] == NULL ? "" :
	    stringof((char *)&_iscsi_acl[_iscsi_session[P]]->initiatorname);
	ii_isid = substr(lltostr(1L << 48 | (uint64_t)ntohl(*(uint32_t *)_iscsi_isid[P]) << 16 |
	    ntohs(*(uint16_t *)(_iscsi_isid[P] + 4)), 16), 3);
	ii_tsih = _iscsi_session[P] == NULL ? "0" : lltostr(_iscsi_session[P]->tsih);
	ii_transport = _iscsi_conn[P]->conn_transport != NULL &&
	    _iscsi_conn[P]->conn_transport->transport_type == 5 ? "iser-ib" : "sockets";
	ii_lun = _iscsi_has_lun[_iscsi_op[P]] ? _iscsi_16[P, 8] & 0x3fff :
	    _iscsi_has_task[_iscsi_op[P]] ? _iscsi_cmd[P]->se_cmd.orig_fe_lun & 0x3fff : 0;
	ii_itt = _iscsi_32[P, 16];
	ii_ttt = _iscsi_has_ttt[_iscsi_op[P]] ? _iscsi_32[P, 20] : 0xffffffff;
	ii_cmdsn = _iscsi_op[P] == 0x23 ?
	    ((struct iscsi_login *)(P->header - offsetof(struct iscsi_login, rsp)))->cmd_sn :
	    _iscsi_op[P] >= 0x20 ? _iscsi_cmd[P]->cmd_sn : _iscsi_op[P] == 5 ? 0 : _iscsi_32[P, 24];
	ii_statsn = _iscsi_op[P] >= 0x20 ? _iscsi_32[P, 24] : 0;
	ii_datasn = _iscsi_op[P] == 5 || _iscsi_op[P] == 0x25 || _iscsi_op[P] == 0x31 ? _iscsi_32[P, 36] : 0;
	ii_datalen = _iscsi_op[P] == 0x31 ? _iscsi_32[P, 44] : _iscsi_32[P, 4] & 0xffffff;
	ii_flags = _iscsi_8[P, 1];
};

translator scsicmd_t < struct _iscsi_pdu *P > {
	ic_len = 16;
	ic_cdb = (uint8_t *)(P->header + 32);
};

/*
 * The provider. Buffers have probes elsewhere, which Linux has not: crates/dtrace/src/compile/absent.txt.
 */
provider iscsi {
	probe login__command(struct _iscsi_pdu *P : conninfo_t *P, iscsiinfo_t *P);
	probe login__response(struct _iscsi_pdu *P : conninfo_t *P, iscsiinfo_t *P);
	probe logout__command(struct _iscsi_pdu *P : conninfo_t *P, iscsiinfo_t *P);
	probe logout__response(struct _iscsi_pdu *P : conninfo_t *P, iscsiinfo_t *P);
	probe text__command(struct _iscsi_pdu *P : conninfo_t *P, iscsiinfo_t *P);
	probe text__response(struct _iscsi_pdu *P : conninfo_t *P, iscsiinfo_t *P);
	probe nop__send(struct _iscsi_pdu *P : conninfo_t *P, iscsiinfo_t *P);
	probe nop__receive(struct _iscsi_pdu *P : conninfo_t *P, iscsiinfo_t *P);
	probe task__command(struct _iscsi_pdu *P : conninfo_t *P, iscsiinfo_t *P);
	probe task__response(struct _iscsi_pdu *P : conninfo_t *P, iscsiinfo_t *P);
	probe scsi__command(struct _iscsi_pdu *P : conninfo_t *P, iscsiinfo_t *P, scsicmd_t *P);
	probe scsi__response(struct _iscsi_pdu *P : conninfo_t *P, iscsiinfo_t *P);
	probe data__send(struct _iscsi_pdu *P : conninfo_t *P, iscsiinfo_t *P);
	probe data__receive(struct _iscsi_pdu *P : conninfo_t *P, iscsiinfo_t *P);
	probe data__request(struct _iscsi_pdu *P : conninfo_t *P, iscsiinfo_t *P);
	probe async__send(struct _iscsi_pdu *P : conninfo_t *P, iscsiinfo_t *P);
	probe xfer__start(struct _iscsi_pdu *P : conninfo_t *P, iscsiinfo_t *P);
	probe xfer__done(struct _iscsi_pdu *P : conninfo_t *P, iscsiinfo_t *P);
};

this struct _iscsi_pdu pdu;

fbt:iscsi_target_mod:iscsi_target_check_login_request:entry
{
	this->pdu.conn = arg0;
	this->pdu.header = (uintptr_t)&((struct iscsi_login *)arg1)->req;
	login__command(&this->pdu);
}
fbt:iscsi_target_mod:iscsit_put_login_tx:entry
{
	this->pdu.conn = arg0;
	this->pdu.header = (uintptr_t)&((struct iscsi_login *)arg1)->rsp;
	login__response(&this->pdu);
}

fbt:iscsi_target_mod:iscsit_handle_logout_cmd:entry
{
	this->pdu.conn = arg0;
	this->pdu.header = arg2;
	logout__command(&this->pdu);
}
fbt:iscsi_target_mod:iscsit_setup_text_cmd:entry
{
	this->pdu.conn = arg0;
	this->pdu.header = arg2;
	text__command(&this->pdu);
}
fbt:iscsi_target_mod:iscsit_setup_nop_out:entry
{
	this->pdu.conn = arg0;
	this->pdu.header = arg2;
	nop__receive(&this->pdu);
}
fbt:iscsi_target_mod:iscsit_handle_task_mgt_cmd:entry
{
	this->pdu.conn = arg0;
	this->pdu.header = arg2;
	task__command(&this->pdu);
}
fbt:iscsi_target_mod:iscsit_setup_scsi_cmd:entry
{
	this->pdu.conn = arg0;
	this->pdu.header = arg2;
	scsi__command(&this->pdu);
}
fbt:iscsi_target_mod:iscsit_check_dataout_hdr:entry
{
	this->pdu.conn = arg0;
	this->pdu.header = arg1;
	data__receive(&this->pdu);
}

inline int _iscsi_sends[uintptr_t CMD] = ((struct iscsit_cmd *)CMD)->pdu[0] & 0x3f;

/* A compiler may have put this function into its callers, and left two of its parts. */
fbt:iscsi_target_mod:iscsit_xmit_pdu:entry, fbt:iscsi_target_mod:iscsit_xmit_nondatain_pdu:entry,
fbt:iscsi_target_mod:iscsit_xmit_datain_pdu:entry
{
	this->pdu.conn = arg0;
	this->pdu.cmd = arg1;
	this->pdu.header = (uintptr_t)&((struct iscsit_cmd *)arg1)->pdu;
}
fbt:iscsi_target_mod:iscsit_xmit_nondatain_pdu:entry /_iscsi_sends[arg1] == 0x20/ { nop__send(&this->pdu); }
fbt:iscsi_target_mod:iscsit_xmit_pdu:entry
/!defined(fbt:iscsi_target_mod:iscsit_xmit_nondatain_pdu:entry) && _iscsi_sends[arg1] == 0x20/
{
	nop__send(&this->pdu);
}
fbt:iscsi_target_mod:iscsit_xmit_nondatain_pdu:entry /_iscsi_sends[arg1] == 0x21/ { scsi__response(&this->pdu); }
fbt:iscsi_target_mod:iscsit_xmit_pdu:entry
/!defined(fbt:iscsi_target_mod:iscsit_xmit_nondatain_pdu:entry) && _iscsi_sends[arg1] == 0x21/
{
	scsi__response(&this->pdu);
}
fbt:iscsi_target_mod:iscsit_xmit_nondatain_pdu:entry /_iscsi_sends[arg1] == 0x22/ { task__response(&this->pdu); }
fbt:iscsi_target_mod:iscsit_xmit_pdu:entry
/!defined(fbt:iscsi_target_mod:iscsit_xmit_nondatain_pdu:entry) && _iscsi_sends[arg1] == 0x22/
{
	task__response(&this->pdu);
}
fbt:iscsi_target_mod:iscsit_xmit_nondatain_pdu:entry /_iscsi_sends[arg1] == 0x24/ { text__response(&this->pdu); }
fbt:iscsi_target_mod:iscsit_xmit_pdu:entry
/!defined(fbt:iscsi_target_mod:iscsit_xmit_nondatain_pdu:entry) && _iscsi_sends[arg1] == 0x24/
{
	text__response(&this->pdu);
}
fbt:iscsi_target_mod:iscsit_xmit_nondatain_pdu:entry /_iscsi_sends[arg1] == 0x26/ { logout__response(&this->pdu); }
fbt:iscsi_target_mod:iscsit_xmit_pdu:entry
/!defined(fbt:iscsi_target_mod:iscsit_xmit_nondatain_pdu:entry) && _iscsi_sends[arg1] == 0x26/
{
	logout__response(&this->pdu);
}
fbt:iscsi_target_mod:iscsit_xmit_nondatain_pdu:entry /_iscsi_sends[arg1] == 0x31/ { data__request(&this->pdu); }
fbt:iscsi_target_mod:iscsit_xmit_pdu:entry
/!defined(fbt:iscsi_target_mod:iscsit_xmit_nondatain_pdu:entry) && _iscsi_sends[arg1] == 0x31/
{
	data__request(&this->pdu);
}
fbt:iscsi_target_mod:iscsit_xmit_nondatain_pdu:entry /_iscsi_sends[arg1] == 0x32/ { async__send(&this->pdu); }
fbt:iscsi_target_mod:iscsit_xmit_pdu:entry
/!defined(fbt:iscsi_target_mod:iscsit_xmit_nondatain_pdu:entry) && _iscsi_sends[arg1] == 0x32/
{
	async__send(&this->pdu);
}
fbt:iscsi_target_mod:iscsit_xmit_datain_pdu:entry { data__send(&this->pdu); }
fbt:iscsi_target_mod:iscsit_xmit_pdu:entry
/!defined(fbt:iscsi_target_mod:iscsit_xmit_datain_pdu:entry) && _iscsi_sends[arg1] == 0x25/
{
	data__send(&this->pdu);
}
