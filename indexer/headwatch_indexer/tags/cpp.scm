(function_definition declarator: (_) @declarator) @definition.function
(template_declaration (function_definition declarator: (_) @declarator)) @definition.function
(friend_declaration (function_definition declarator: (_) @declarator)) @definition.function
(class_specifier name: (_) @name body: (_)) @definition.class
(struct_specifier name: (_) @name body: (_)) @definition.class
(union_specifier name: (_) @name body: (_)) @definition.class
(template_declaration [(class_specifier name: (_) @name body: (_)) (struct_specifier name: (_) @name body: (_))
  (union_specifier name: (_) @name body: (_))]) @definition.class
(enum_specifier name: (_) @name body: (_)) @definition.type
(type_definition type: [(struct_specifier name: (_) @name body: (_)) (union_specifier name: (_) @name body: (_))
  (class_specifier name: (_) @name body: (_))]) @definition.class
(type_definition type: (enum_specifier name: (_) @name body: (_))) @definition.type
(type_definition type: [(struct_specifier !name body: (_)) (union_specifier !name body: (_))]
  declarator: (_) @declarator) @definition.class
(type_definition declarator: (_) @declarator) @definition.type
(alias_declaration name: (_) @name) @definition.type
(template_declaration (alias_declaration name: (_) @name)) @definition.type
(concept_definition name: (_) @name) @definition.type
(template_declaration (concept_definition name: (_) @name)) @definition.type
(namespace_definition name: (_) @name) @definition.module
(preproc_function_def name: (_) @name) @definition.function
(preproc_def name: (_) @name value: (_)) @definition.constant
(translation_unit (declaration (type_qualifier) @qualifier
  declarator: (init_declarator) @declarator (#match? @qualifier "^const")) @definition.constant)
(namespace_definition body: (declaration_list (declaration (type_qualifier) @qualifier
  declarator: (init_declarator) @declarator (#match? @qualifier "^const")) @definition.constant))
