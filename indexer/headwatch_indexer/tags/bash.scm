(function_definition name: (_) @name) @definition.function
(program (declaration_command (variable_assignment name: (variable_name) @name)) @definition.constant
  (#match? @name "^[A-Z][A-Z0-9_]*$"))
(program (variable_assignment name: (variable_name) @name) @definition.constant
  (#match? @name "^[A-Z][A-Z0-9_]*$"))
