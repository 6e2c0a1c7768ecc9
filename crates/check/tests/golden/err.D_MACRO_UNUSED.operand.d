/* operand: extra */
BEGIN {}
