(function_declaration name: (identifier) @name) @definition.function
(function_declaration name: (dot_index_expression) @name) @definition.function
(function_declaration name: (method_index_expression) @name) @definition.method
(assignment_statement (variable_list . name: [(identifier) (dot_index_expression)] @name)
  (expression_list . value: (function_definition))) @definition.function
(variable_declaration (assignment_statement (variable_list . name: (identifier) @name)
  (expression_list . value: (function_definition)))) @definition.function
(assignment_statement (variable_list . name: [(identifier) (dot_index_expression)] @name)
  (expression_list . value: (table_constructor))) @scope
(field name: (_) @name value: (table_constructor)) @scope
(field name: (_) @name value: (function_definition)) @definition.method
(chunk (variable_declaration (assignment_statement (variable_list . name: (identifier) @name))
  (#match? @name "^[A-Z][A-Z0-9_]+$")) @definition.constant)
(chunk (assignment_statement (variable_list . name: [(identifier) (dot_index_expression)] @name)
  (#match? @name "^([A-Za-z_]+\\.)?[A-Z][A-Z0-9_]+$")) @definition.constant)
