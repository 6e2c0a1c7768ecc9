# Completions of dtrace for bash (dtrace --completions bash): source it, or install it as share/bash-completion/completions/dtrace.

_dtrace() {
    # The words as they are without quotation marks. COMP_WORDS is divided at colons.
    local LC_ALL=C line=${COMP_LINE:0:COMP_POINT}
    local word= quote= char= begun= i
    local -a before=()
    for ((i = 0; i < ${#line}; i++)); do
        char=${line:i:1}
        if [[ $quote == "'" ]]; then
            if [[ $char == "'" ]]; then quote=; else word+=$char; fi
        elif [[ $char == \\ ]]; then
            i=$((i + 1)) begun=1
            word+=${line:i:1}
        elif [[ $quote == '"' ]]; then
            if [[ $char == '"' ]]; then quote=; else word+=$char; fi
        elif [[ $char == [\'\"] ]]; then
            quote=$char begun=1
        elif [[ $char == [[:space:]] ]]; then
            if [[ $begun ]]; then before+=("$word"); fi
            word= begun=
        else
            word+=$char begun=1
        fi
    done

    local option= value=$word kind= words= text help
    case $word in
        --*=*) option=${word%%=*} value=${word#*=} ;;
        -*) kind=option ;;
        *) if ((${#before[@]} > 1)); then option=${before[${#before[@]} - 1]}; fi ;;
    esac
    case $option in
@WORDS@
@KINDS@
    esac

    COMPREPLY=()
    case $kind in
        option) COMPREPLY=($(compgen -W '@OPTIONS@' -- "$word")) ; return ;;
        word) COMPREPLY=($(compgen -W "$words" -- "$value")) ; return ;;
        file | '') compopt -o filenames ; mapfile -t COMPREPLY < <(compgen -f -- "$value") ; return ;;
        directory) compopt -o filenames ; mapfile -t COMPREPLY < <(compgen -d -- "$value") ; return ;;
        command) mapfile -t COMPREPLY < <(compgen -c -- "$value") ; return ;;
        text) return ;;
    esac

    # What is in the line up to the last character that divides words is no part of what bash replaces.
    local kept= breaks=${COMP_WORDBREAKS//[[:space:]\"\']/} goes_on=
    if [[ ! $quote ]]; then kept=${value%"${value##*[$breaks]}"}; fi
    while IFS=$'\t' read -r text help; do
        if [[ $text == *[:=] || $help == ... ]]; then goes_on=1; fi
        text=${text#"$kept"}
        case $quote in
            "'") ;;
            '"') text=${text//\$/\\\$} ;;
            *) printf -v text %q "$text" ;;
        esac
        COMPREPLY+=("$text")
    done < <("$1" --complete "${option:${#option} - 1}" "$value" "${before[@]}" 2>/dev/null)
    if [[ $goes_on ]]; then compopt -o nospace; fi
}

complete -F _dtrace dtrace
