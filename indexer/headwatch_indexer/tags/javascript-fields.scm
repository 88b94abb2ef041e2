; Class fields bound to functions, as the JavaScript grammar names them.
(class_body (field_definition property: (_) @name
  value: [(arrow_function) (function_expression)]) @definition.method)
