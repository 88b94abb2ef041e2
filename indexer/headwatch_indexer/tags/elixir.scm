(call target: (identifier) @keyword (arguments . (alias) @name) (do_block)
  (#eq? @keyword "defmodule")) @definition.module
(call target: (identifier) @keyword (arguments . (alias) @name) (do_block)
  (#eq? @keyword "defprotocol")) @definition.interface
(call target: (identifier) @keyword
  (arguments . (alias) @receiver (keywords (pair key: (keyword) @for value: (alias) @name)))
  (#eq? @keyword "defimpl") (#match? @for "^for:")) @definition.module
(call target: (identifier) @keyword
  (arguments . [
    (identifier) @name
    (call target: (identifier) @name)
    (binary_operator left: (call target: (identifier) @name) operator: "when")
    (binary_operator left: (identifier) @name operator: "when")])
  (#match? @keyword "^def(p|macro|macrop|guard|guardp|delegate|n|np)?$")) @definition.function
