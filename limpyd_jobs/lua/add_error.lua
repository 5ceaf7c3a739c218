-- Creates an error. No transition of a job.
--
-- ARGV[1]  error model
-- ARGV[2]  mode: 'create'; 'reserve' makes nothing, but gives a pk
-- ARGV[3]  pk that was reserved, or ''
-- ARGV[4…] fields: field, value…
--
-- {'added', pk, reindex}    {'reserved', pk}    {'not unique', field, value, pk of its owner}

--@include records

local error_model, reserved_pk, fields = model_of(ARGV[1]), ARGV[3], pairs_from(4)

local conflict = not_unique(error_model, fields)
if conflict then
  return conflict
end

local pk = reserved_pk ~= '' and reserved_pk or new_pk(error_model)
if ARGV[2] == 'reserve' then
  return {'reserved', pk}
end
create(error_model, pk, fields, reserved_pk ~= '')
return {'added', pk, reindex}
