# Completions of dtrace for fish (dtrace --completions fish): source it, or install it as vendor_completions.d/dtrace.fish.

# The candidates for the argument of an option.
function __dtrace_candidates
    set -l words (commandline -opc)
    set -l begun (string replace -r -- "^-$argv[1](?=.)" '' (commandline -ct) | string replace -r -- '^[\'"]' '' | string replace -a -- '\\$' '$')
    $words[1] --complete $argv[1] "$begun" $words 2>/dev/null
end

