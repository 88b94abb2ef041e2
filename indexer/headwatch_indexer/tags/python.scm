; Every def and class, at any depth; UPPER_CASE names and type aliases of the module.
(function_definition name: (identifier) @name) @definition.function
(class_definition name: (identifier) @name) @definition.class
(module (type_alias_statement left: (type . (identifier) @name)) @definition.type)
(module (type_alias_statement left: (type (generic_type . (identifier) @name))) @definition.type)
(module
  (expression_statement (assignment left: (identifier) @name)) @definition.constant
  (#match? @name "^_*[A-Z][A-Z0-9_]*$"))
