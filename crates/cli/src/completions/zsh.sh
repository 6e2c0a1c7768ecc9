#compdef dtrace
# Completions of dtrace for zsh (dtrace --completions zsh): source it, or install it as _dtrace in a directory of fpath.

# The candidates for the argument of an option.
_dtrace_candidates() {
    local line text help
    local -a whole whole_help more more_help
    for line in "${(@f)$("${(Q)words[1]}" --complete "$1" "${(Q)PREFIX}" "${(@Q)words}" 2>/dev/null)}"; do
        text=${line%%$'\t'*} help=${line#*$'\t'}
        [[ -n $text ]] || continue
        [[ -z $help ]] || help=" -- $help"
        if [[ $text == *[:=] || $help == ' -- ...' ]]; then
            more+=("$text") more_help+=("$text$help")
        else
            whole+=("$text") whole_help+=("$text$help")
        fi
    done
    (($#more)) && compadd -S '' -d more_help -a more
    (($#whole)) && compadd -d whole_help -a whole
    return $((! ($#more + $#whole)))
}

_dtrace() {
    _arguments -s -S \
@SPECS@
        '(- *)--help[print a summary of the options]' \
        '*:file:_files'
}

if [[ ${funcstack[1]} == _dtrace ]]; then
    _dtrace "$@"
else
    compdef _dtrace dtrace
fi
