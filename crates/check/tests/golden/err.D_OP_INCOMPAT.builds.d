pid7:prog:take:entry { this->c = args[0]; }
pid8:prog:take:entry { this->c = args[0]; }
